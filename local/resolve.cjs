// Written by `sandlane up --tls`. With NODE_OPTIONS=--require=<this file> Node
// finds the names of DOMAIN on this machine, also where its C library asks a name
// server for them, which knows none.
'use strict'
const dns = require('node:dns')

const domain = 'DOMAIN'
const address = { address: '127.0.0.1', family: 4 }

function ours(name, options) {
  const family = typeof options === 'object' && options !== null ? options.family : options
  if (family === 6 || family === 'IPv6' || typeof name !== 'string') return false
  const lower = name.toLowerCase()
  return lower === domain || lower.endsWith('.' + domain)
}

const wantsAll = (options) => typeof options === 'object' && options !== null && options.all === true

const { lookup } = dns
dns.lookup = function (name, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options]
  if (!ours(name, options)) return lookup.call(dns, name, options ?? {}, callback)
  if (wantsAll(options)) process.nextTick(callback, null, [{ ...address }])
  else process.nextTick(callback, null, address.address, address.family)
  return {}
}
Object.defineProperties(dns.lookup, Object.getOwnPropertyDescriptors(lookup)) // util.promisify looks there

const { lookup: lookupLater } = dns.promises
dns.promises.lookup = async function (name, options) {
  if (!ours(name, options)) return lookupLater.call(dns.promises, name, options)
  return wantsAll(options) ? [{ ...address }] : { ...address }
}

require('node:module').syncBuiltinESMExports()
