-- Asks Sluice about a request, and keeps the answer in the transaction's variables sluice_*.
local url = "http://127.0.0.1:8001/v1/authorize"
local key = "slk_YOUR_KEY"

core.register_action("sluice", { "http-req" }, function(txn)
  local answer = core.httpclient():get({
    url = url,
    timeout = 300,
    headers = {
      ["x-sluice-key"] = { key },
      ["x-forwarded-method"] = { txn.f:method() },
      ["x-forwarded-uri"] = { txn.f:pathq() },
      ["x-forwarded-for"] = { txn.f:src() },
      -- For mappings that read it: ["authorization"] = { txn.f:req_fhdr("authorization") },
    },
  })
  -- Sluice, or the proxy before it, did not answer: let the request pass. To refuse it instead, leave this out.
  if answer == nil or answer.status == 0 or answer.status == nil or answer.status == 502 or answer.status == 504
    or (answer.status == 503 and not (answer.headers or {})["x-request-id"]) then
    return
  end
  txn:set_var("txn.sluice_status", answer.status)
  txn:set_var("txn.sluice_body", answer.body or "")
  for name, header in pairs({ retry_after = "retry-after", authenticate = "www-authenticate", ratelimit = "ratelimit", policy = "ratelimit-policy" }) do
    local value = answer.headers and answer.headers[header]
    if value ~= nil then
      txn:set_var("txn.sluice_" .. name, value[0])
    end
  end
end)
