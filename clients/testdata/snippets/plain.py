import os

# pip install PATH/TO/CHECKOUT/clients/python
from sluice import Check, Sluice

# One for the whole process.
limits = Sluice("http://127.0.0.1:8080", os.environ["SLUICE_KEY"])
decision = limits.check(Check(
    user_id="42",
    endpoint="/api/reports",
))
if decision.allowed:
    print("allowed")
else:
    print("denied, wait", decision.retry_after, "s")
