// Cases of E2B's JavaScript SDK against `sandlane up --tls`.
//
// Usage: node tls_cases.mjs FOLDER [CASE…], where FOLDER holds node_modules with
// the SDK, which is configured by E2B_DOMAIN and NODE_EXTRA_CA_CERTS alone; so is
// what a user's own program does here. Each case gives one line of JSON as those of
// cases.mjs do.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

const folder = path.resolve(process.argv[2])
const wanted = process.argv.slice(3)
const require = createRequire(path.join(folder, 'package.json'))
const e2b = require('e2b')
const { Sandbox } = e2b
// Node has one since 22.
const WebSocket = globalThis.WebSocket ?? require('undici').WebSocket
const DOMAIN = process.env.E2B_DOMAIN
const PARALLEL = 40
const BIG = 5 << 20

async function ask(url, options = {}) {
  const answer = await fetch(url, { signal: AbortSignal.timeout(20_000), ...options })
  return { status: answer.status, body: Buffer.from(await answer.arrayBuffer()) }
}

const status = async (url, options) => (await ask(url, options)).status

async function listens(s, port) {
  await s.commands.run(`until (: </dev/tcp/127.0.0.1/${port}) 2>/dev/null; do sleep 0.05; done`, { timeoutMs: 20_000 })
}

// talk returns what the server says first and to each message.
function talk(url, messages) {
  return new Promise((resolve, reject) => {
    const heard = []
    const socket = new WebSocket(url)
    socket.onerror = (event) => reject(event.error ?? new Error(`${url}: ${event.message}`))
    socket.onclose = () => reject(new Error(`closed after ${heard.length} messages`))
    socket.onmessage = ({ data }) => {
      heard.push(data)
      if (heard.length <= messages.length) return socket.send(messages[heard.length - 1])
      resolve(heard)
      socket.close()
    }
  })
}

function form(data) {
  const body = new FormData()
  body.append('file', new Blob([data]), 'up.bin')
  return { method: 'POST', body }
}

// damaged is the URL with a signature that is wrong in one character.
const damaged = (url) => url.replace(/signature=v1_(.)/, (_, c) => 'signature=v1_' + (c === 'A' ? 'B' : 'A'))

const cases = {
  async tls_commands(s) {
    assert.equal((await s.commands.run('echo over TLS')).stdout, 'over TLS\n')
    const r = await s.commands.run(`head -c ${BIG} /dev/zero | tr '\\0' x`, { timeoutMs: 60_000 })
    assert(r.stdout.length === BIG && /^x*$/.test(r.stdout))
    await s.files.write('note.txt', 'hi ü')
    assert.equal(await s.files.read('note.txt'), 'hi ü')
  },
  async tls_parallel(s) {
    const all = await Promise.all(Array.from({ length: PARALLEL }, (_, i) => s.commands.run(`echo ${i}; sleep 0.2`)))
    assert.deepEqual(all.map((r) => r.stdout), all.map((_, i) => `${i}\n`))
  },
  async tls_life() {
    const s = await Sandbox.create({ metadata: { set: 'tls' } })
    const again = await Sandbox.connect(s.sandboxId)
    assert.equal(again.getHost(3000), `3000-${s.sandboxId}.${DOMAIN}`)
    const found = await Sandbox.list({ query: { metadata: { set: 'tls' } } }).nextItems()
    assert.deepEqual(found.map((i) => i.sandboxId), [s.sandboxId])
    assert.equal(await s.isRunning(), true)
    await s.kill()
    assert.equal(await s.isRunning(), false)
  },
  // Killed while commands run, all of which share one connection.
  async tls_killed(other) {
    const s = await Sandbox.create()
    const waiting = []
    for (const command of ['sleep 1000', 'while :; do echo x; sleep 0.1; done']) {
      const handle = await s.commands.run(command, { background: true })
      waiting.push(handle.wait().then((r) => new Error(`the command ended with ${JSON.stringify(r)}`), (err) => err))
    }
    await Sandbox.kill(s.sandboxId)
    const killed = performance.now()
    for (const err of await Promise.all(waiting)) {
      assert(err instanceof e2b.TimeoutError || err instanceof e2b.NotFoundError, `${err.name}: ${err.message}`)
    }
    const took = performance.now() - killed
    assert(took < 30_000, `the SDK knew ${took} ms after the kill`) // a command of its own would end after 60 s
    assert.equal((await other.commands.run('echo others go on')).stdout, 'others go on\n')
  },
  async tls_host_http(s) {
    await s.files.write('index.html', 'served by ' + s.sandboxId)
    await s.commands.run('python3 -m http.server 8000', { background: true, cwd: '/home/user' })
    await listens(s, 8000)
    assert.equal(s.getHost(8000), `8000-${s.sandboxId}.${DOMAIN}`)
    const { status, body } = await ask(`https://${s.getHost(8000)}/`)
    assert.deepEqual([status, body.toString()], [200, 'served by ' + s.sandboxId])
    const closed = await ask(`https://${s.getHost(8001)}/`)
    assert.deepEqual([closed.status, JSON.parse(closed.body).message], [502, 'The sandbox is running but port is not open'])
  },
  async tls_host_websocket(s) {
    await s.files.write('wsecho.py', await readFile(new URL('../python/wsecho.py', import.meta.url), 'utf8'))
    await s.commands.run('python3 wsecho.py 8080', { background: true })
    await listens(s, 8080)
    const long = 'x'.repeat(5000)
    assert.deepEqual(await talk(`wss://${s.getHost(8080)}/ws`, ['one', 'zwei ü', long]), ['welcome', 'one', 'zwei ü', long])
  },
  async tls_signed_urls(s) {
    const data = randomBytes(100_000)
    const up = await s.uploadUrl('signed/up.bin', { useSignatureExpiration: 60 })
    assert(up.startsWith(`https://49983-${s.sandboxId}.${DOMAIN}/files?`), up)
    assert.equal(await status(damaged(up), form(data)), 401)
    assert.equal(await s.files.exists('signed/up.bin'), false)
    assert.equal(await status(up, form(data)), 200)
    const down = await s.downloadUrl('signed/up.bin', { useSignatureExpiration: 60 })
    for (const url of [down, await s.downloadUrl('signed/up.bin')]) {
      const got = await ask(url)
      assert(got.status === 200 && got.body.equals(data), `${got.status} with ${got.body.length} bytes`)
    }
    assert.equal(await status(damaged(down)), 401)
    assert.equal(await status(await s.downloadUrl('signed/up.bin', { useSignatureExpiration: -60 })), 401)
    assert.equal(await status(down.replace('up.bin', 'other.bin')), 401)
    assert.equal(await status(down, form(data)), 401) // reading is not writing
  },
}

const shared = await Sandbox.create({ timeoutMs: 600_000 })
for (const [name, run] of Object.entries(cases)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const began = performance.now()
  let error = ''
  try {
    await Promise.race([run(shared), pause(60_000, null, { ref: false }).then(() => { throw new Error('no end after 60 s') })])
  } catch (err) {
    error = `${err?.name}: ${err?.message} ${err?.cause ?? ''}`
  }
  console.log(JSON.stringify({ name, ok: !error, error, ms: Math.round(performance.now() - began) }))
}
await shared.kill()
