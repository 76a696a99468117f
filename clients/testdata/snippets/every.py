import os

# pip install PATH/TO/CHECKOUT/clients/python
from sluice import Check, Sluice

# One for the whole process.
limits = Sluice("http://127.0.0.1:8080", os.environ["SLUICE_KEY"])
decision = limits.check(Check(
    user_id="it's \"42\" `here` $HOME \\ \n é 𝕏",
    plan="pro",
    endpoint="/api/reports",
    method="GET",
    ip="203.0.113.9",
    cost=2.5,
    attributes={"org":"it's \"42\" `here` $HOME \\ \n é 𝕏","size":"l"},
))
if decision.allowed:
    print("allowed")
else:
    print("denied, wait", decision.retry_after, "s")
