-- Refuses a request whose answer by ExtProc is older than `longest` (milliseconds), or has
-- no time. Times are of CLOCK_BOOTTIME, which counts while the machine sleeps and is never
-- set: the gateway, on the same kernel, writes them.
local ffi = require("ffi")
ffi.cdef("typedef struct { long seconds, nanos; } sandlane_time; int clock_gettime(int, sandlane_time *);")
local boottime, time = 7, ffi.new("sandlane_time")

function envoy_on_request(handle)
  local metadata = handle:streamInfo():dynamicMetadata():get(namespace)
  local answered = metadata and metadata[key]
  if answered and ffi.C.clock_gettime(boottime, time) == 0 then
    local age = tonumber(time.seconds) * 1000 + tonumber(time.nanos) / 1e6 - answered
    if age >= 0 and age <= longest then return end
  end
  handle:respond({[":status"] = "503"}, "")
end
