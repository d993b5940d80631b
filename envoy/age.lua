-- Refuses a request whose answer by ExtProc is older than `longest` (milliseconds), or has
-- no time, and to send one twice that may not be repeated, or whose answer is older than
-- `repeats` by then. Times are of CLOCK_BOOTTIME, which counts while the machine sleeps and
-- is never set: the gateway, on the same kernel, writes them.
local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds, nanos; } sandlane_time; int clock_gettime(int, sandlane_time *);")
local boottime, time = 7, ffi.new("sandlane_time")

function envoy_on_request(handle)
  local headers, metadata = handle:headers(), handle:streamInfo():dynamicMetadata()
  local connection, sent, received, body, ended = string.match(headers:get(attempt) or "", "^(%d+) (%d+) (%d+) (%d+) ?(%d*)")
  headers:remove(attempt)
  local ours, longest, refusal = metadata:get(namespace) or {}, longest, "503"
  if sent ~= "0" then
    longest, refusal = repeats, "502"
    if received ~= "0" or ours.opened or body ~= "0" or ended == "" then longest = -1 end
  elseif connection == "0" then
    metadata:set(namespace, "opened", true) -- this request's connection is a new one
  end
  local answered = ours[key]
  if answered and ffi.C.clock_gettime(boottime, time) == 0 then
    local age = tonumber(time.seconds) * 1000 + tonumber(time.nanos) / 1e6 - answered
    if age >= 0 and age <= longest then return end
  end
  if sent ~= "0" then metadata:set(namespace, broken, 1) end
  handle:respond({[":status"] = refusal}, "")
end
