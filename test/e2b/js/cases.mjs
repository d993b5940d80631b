// Cases of E2B's JavaScript SDK against a running Sandlane.
//
// Usage: node cases.mjs FOLDER, where FOLDER holds node_modules with the SDK,
// which is configured by its usual variables. Each case is a function and gives
// one line of JSON: name, ok, error, ms. The Go test beside this folder starts
// it and knows which cases there must be.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

const folder = path.resolve(process.argv[2])
const e2b = createRequire(path.join(folder, 'package.json'))('e2b')
const { Sandbox } = e2b
const GATEWAY = process.env.E2B_SANDBOX_URL
const ELSEWHERE = process.env.TEST_ELSEWHERE_URL // the gateway, seen from another address
const PARALLEL = 50
const BIG = 10 << 20
const MISSING = 'i00000000000000000000'

async function until(what, cond, seconds = 10) {
  const end = performance.now() + seconds * 1000
  while (!(await cond())) {
    assert(performance.now() < end, `${what} does not happen`)
    await pause(50)
  }
}

// fails expects this class of error, or one below it.
async function fails(error, call) {
  let value
  try {
    value = await call()
  } catch (err) {
    if (err instanceof error) return err
    throw new Error(`${err.name} instead of ${error.name}: ${err.message}`)
  }
  throw new Error(`${JSON.stringify(value)} instead of ${error.name}`)
}

// gone expects what the SDK says of a sandbox that has ended.
function gone(err) {
  assert(err instanceof e2b.TimeoutError || err instanceof e2b.NotFoundError, `${err.name}: ${err.message}`)
}

// The SDKs that can give the memory up; for the others the REST API is asked.
const [, minor] = JSON.parse(readFileSync(path.join(folder, 'node_modules/e2b/package.json'))).version.split('.').map(Number)
const keepsFiles = minor >= 50

async function post(at, body) {
  return fetch(process.env.E2B_API_URL + at, {
    method: 'POST', body: JSON.stringify(body), headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
  })
}

// pauseFiles pauses without the memory.
async function pauseFiles(s) {
  if (keepsFiles) return s.pause({ keepMemory: false })
  const answer = await post(`/sandboxes/${s.sandboxId}/pause`, { memory: false })
  assert([204, 409].includes(answer.status), `pause: ${answer.status} ${await answer.text()}`)
  return answer.status === 204
}

// createPausingFiles makes a sandbox that is paused so at its timeout.
async function createPausingFiles() {
  if (keepsFiles) return Sandbox.create({ timeoutMs: 120_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  const answer = await post('/v2/sandboxes', { templateID: 'base', timeout: 120, autoPause: true, autoPauseMemory: false })
  assert.equal(answer.status, 201)
  return Sandbox.connect((await answer.json()).sandboxID)
}

// made gives use a sandbox and ends it afterwards.
async function made(options, use) {
  const s = await Sandbox.create(options)
  try {
    await use(s)
  } finally {
    await s.kill()
  }
}

// fetchHost asks the gateway for a host as a browser would whose DNS leads here.
function fetchHost(host, at = '/', headers = {}) {
  return new Promise((resolve, reject) => {
    const request = http.get(GATEWAY + at, { headers: { Host: host, ...headers }, timeout: 10_000 }, (answer) => {
      let text = ''
      answer.on('data', (part) => (text += part))
      answer.on('end', () => resolve({ status: answer.statusCode, text }))
    })
    request.on('error', reject)
  })
}

// serve starts a web server in the sandbox and waits until it listens.
async function serve(s, port) {
  await s.commands.run(`python3 -m http.server ${port}`, { background: true, cwd: '/home/user' })
  await s.commands.run(`until (: </dev/tcp/127.0.0.1/${port}) 2>/dev/null; do sleep 0.05; done`, { timeoutMs: 10_000 })
}

const cases = {
  async create_metadata_envs() {
    await made({ metadata: { purpose: 'a b&c=d' }, envs: { GREETING: 'hello world' }, timeoutMs: 120_000 }, async (s) => {
      assert.deepEqual((await s.getInfo()).metadata, { purpose: 'a b&c=d' })
      assert.equal((await s.commands.run('echo $GREETING')).stdout, 'hello world\n')
    })
  },
  async command_output(s) {
    let out = ''
    let err = ''
    const r = await s.commands.run('echo one; echo two >&2', { onStdout: (d) => (out += d), onStderr: (d) => (err += d) })
    assert.deepEqual([r.stdout, r.stderr, r.exitCode, out, err], ['one\n', 'two\n', 0, 'one\n', 'two\n'])
    assert.equal((await s.commands.run('echo $A; pwd', { envs: { A: 'ä' }, cwd: '/tmp' })).stdout, 'ä\n/tmp\n')
  },
  async command_exit_code(s) {
    const err = await fails(e2b.CommandExitError, () => s.commands.run('echo no >&2; exit 7'))
    assert.deepEqual([err.exitCode, err.stderr], [7, 'no\n'])
  },
  async command_stdin(s) {
    const h = await s.commands.run('read -r line; echo got $line', { background: true, stdin: true })
    await s.commands.sendStdin(h.pid, 'some words\n')
    assert.equal((await h.wait()).stdout, 'got some words\n')
  },
  async command_background_kill(s) {
    const h = await s.commands.run('sleep 1000', { background: true })
    assert((await s.commands.list()).some((p) => p.pid === h.pid))
    assert.equal(await s.commands.kill(h.pid), true)
    await fails(e2b.CommandExitError, () => h.wait())
    assert.equal(await s.commands.kill(h.pid), false)
  },
  async command_reconnect(s) {
    const h = await s.commands.run('read -r x; echo later $x', { background: true, stdin: true })
    await h.disconnect()
    const again = await s.commands.connect(h.pid)
    await s.commands.sendStdin(h.pid, 'on\n')
    assert.equal((await again.wait()).stdout, 'later on\n')
  },
  async command_timeout(s) {
    await fails(e2b.TimeoutError, () => s.commands.run('sleep 1000', { timeoutMs: 1000 }))
    await until('the end of a command whose time is over', async () =>
      (await s.commands.list()).every((p) => !p.args.join(' ').includes('sleep 1000')))
  },
  async command_users(s) {
    assert.equal((await s.commands.run('id -un; echo $HOME')).stdout, 'user\n/home/user\n')
    assert.equal((await s.commands.run('id -un; echo $HOME', { user: 'root' })).stdout, 'root\n/root\n')
    assert.equal((await s.commands.run('sudo id -un; sudo -u user id -un')).stdout, 'root\nuser\n')
    await fails(Error, () => s.commands.run('id', { user: 'nobody-here' }))
    const secrets = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c ^SANDBOXD_ || true"
    assert.equal((await s.commands.run(secrets, { user: 'root' })).stdout, '0\n')
  },
  async command_big_output(s) {
    const r = await s.commands.run(`head -c ${BIG} /dev/zero | tr '\\0' x`, { timeoutMs: 120_000 })
    assert.equal(r.stdout.length, BIG)
    assert(/^x*$/.test(r.stdout))
  },
  async command_parallel(s) {
    const all = await Promise.all(Array.from({ length: PARALLEL }, (_, i) => s.commands.run(`echo ${i}; sleep 0.2`)))
    assert.deepEqual(all.map((r) => r.stdout), all.map((_, i) => `${i}\n`))
  },
  async pty(s) {
    let text = ''
    const t = await s.pty.create({ cols: 77, rows: 33, onData: (d) => { text += new TextDecoder().decode(d) } })
    await s.pty.sendInput(t.pid, new TextEncoder().encode('stty size; tty; exit\n'))
    await t.wait()
    assert(text.includes('33 77') && text.includes('/dev/pts/'), text)
  },
  async pty_resize_kill(s) {
    const t = await s.pty.create({ cols: 20, rows: 10, onData: () => {} })
    await s.pty.resize(t.pid, { cols: 55, rows: 44 })
    await s.pty.sendInput(t.pid, new TextEncoder().encode('stty size > /tmp/size\n'))
    await until('the new size', async () => (await s.files.exists('/tmp/size')) && (await s.files.read('/tmp/size')).includes('44 55'))
    assert.equal(await s.pty.kill(t.pid), true)
  },
  async files_basic(s) {
    assert.equal((await s.files.write('dir/one.txt', 'erste Zeile ü\n')).path, '/home/user/dir/one.txt')
    assert.equal(await s.files.read('dir/one.txt'), 'erste Zeile ü\n')
    assert.deepEqual([await s.files.exists('dir'), await s.files.exists('nowhere')], [true, false])
    assert.deepEqual([await s.files.makeDir('dir/sub'), await s.files.makeDir('dir/sub')], [true, false])
    assert.deepEqual((await s.files.list('dir')).map((e) => e.name).sort(), ['one.txt', 'sub'])
    assert.equal((await s.files.rename('dir/one.txt', 'dir/two.txt')).path, '/home/user/dir/two.txt')
    const entry = await s.files.getInfo('dir/two.txt')
    assert.deepEqual([entry.owner, entry.size, entry.type], ['user', Buffer.byteLength('erste Zeile ü\n'), e2b.FileType.FILE])
    await s.files.remove('dir')
    assert.equal(await s.files.exists('dir'), false)
    await s.files.write('/root/secret', 'r', { user: 'root' })
    assert.equal((await s.files.getInfo('/root/secret', { user: 'root' })).owner, 'root')
  },
  async files_bytes_stream(s) {
    const data = crypto.getRandomValues(new Uint8Array(3 << 20).subarray(0, 65536))
    const blob = Buffer.concat(Array(48).fill(data))
    await s.files.write('blob', blob.buffer.slice(blob.byteOffset, blob.byteOffset + blob.length))
    assert(blob.equals(Buffer.from(await s.files.read('blob', { format: 'bytes' }))))
    const parts = []
    for await (const part of await s.files.read('blob', { format: 'stream' })) parts.push(part)
    assert(blob.equals(Buffer.concat(parts)))
  },
  async files_several(s) {
    const many = Array.from({ length: 20 }, (_, i) => ({ path: `many/${i}`, data: String(i) }))
    assert.deepEqual((await s.files.write(many)).map((f) => f.path), many.map((f) => '/home/user/' + f.path))
    assert.deepEqual(await Promise.all(many.map((f) => s.files.read(f.path))), many.map((f) => f.data))
  },
  async files_watch(s) {
    await s.files.makeDir('watched/deep')
    const seen = []
    const w = await s.files.watchDir('watched', (event) => { seen.push(event) }, { recursive: true })
    await s.files.write('watched/deep/file', 'x')
    await until('the event', () => seen.some((e) => e.name === 'deep/file' && e.type === e2b.FilesystemEventType.CREATE))
    await w.stop()
  },
  async list_pages() {
    const mine = { set: 'pages', by: String(process.pid) } // other SDKs run beside this one
    await made({ metadata: mine }, (one) => made({ metadata: mine }, async (two) => {
      const pages = Sandbox.list({ query: { metadata: mine }, limit: 1 })
      const ids = []
      while (pages.hasNext) {
        const items = await pages.nextItems()
        assert(items.length <= 1, `a page of ${items.length}`)
        ids.push(...items.map((i) => i.sandboxId))
      }
      assert.deepEqual(ids.sort(), [one.sandboxId, two.sandboxId].sort())
    }))
  },
  async list_metadata() {
    const odd = { a: 'b c&d=e', 'k/1': 'v%20ü', by: String(process.pid) }
    await made({ metadata: odd }, async (s) => {
      const found = await Sandbox.list({ query: { metadata: odd } }).nextItems()
      assert.deepEqual(found.map((i) => [i.sandboxId, i.metadata]), [[s.sandboxId, odd]])
      assert.deepEqual(await Sandbox.list({ query: { metadata: { a: 'other' } } }).nextItems(), [])
    })
  },
  async create_env() {
    const s = await Sandbox.create('by-env')
    try {
      assert.equal((await s.getInfo()).templateId, 'by-env')
      assert.equal((await s.commands.run('echo here')).stdout, 'here\n')
    } finally {
      await s.kill()
    }
  },
  async get_info(s) {
    const info = await s.getInfo()
    assert.deepEqual([info.sandboxId, info.state], [s.sandboxId, 'running'])
    assert(info.startedAt < info.endAt && info.cpuCount > 0 && info.memoryMB > 0)
    assert.equal((await Sandbox.getInfo(s.sandboxId)).templateId, info.templateId)
  },
  async set_timeout() {
    await made({ timeoutMs: 60_000 }, async (s) => {
      const before = (await s.getInfo()).endAt
      await s.setTimeout(1_800_000)
      const more = ((await s.getInfo()).endAt - before) / 1000
      assert(more > 1600 && more < 1800, `${more} s more`)
      await s.setTimeout(1000)
      await until('the end of its time', async () => !(await s.isRunning()), 30)
    })
  },
  async is_running_kill() {
    const s = await Sandbox.create()
    assert.equal(await s.isRunning(), true)
    await s.kill()
    assert.equal(await s.isRunning(), false)
    assert.equal(await Sandbox.kill(s.sandboxId), false)
  },
  // A process counts on where it stood: it is the same one, and did not run meanwhile.
  async pause_resume() {
    await made({ timeoutMs: 120_000 }, async (s) => {
      await s.files.write('kept.txt', 'kept')
      const h = await s.commands.run('i=0; while :; do echo $((i+=1)) > count; sleep 0.05; done', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      await until('a count', () => s.files.exists('count'))
      assert.equal(await s.pause(), true)
      assert.equal((await Sandbox.getInfo(s.sandboxId)).state, 'paused')
      assert.equal(await s.isRunning(), false)
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
      await fails(e2b.SandboxError, () => s.setTimeout(60_000))
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      const info = await again.getInfo()
      assert.equal(info.state, 'running')
      const left = (info.endAt - Date.now()) / 1000
      assert(left > 280 && left <= 302, `it ends in ${left} s`)
      assert.equal(await again.isRunning(), true)
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert((await again.commands.list()).some((p) => p.pid === h.pid))
      const before = Number(await again.files.read('count'))
      await until('counting', async () => Number(await again.files.read('count')) > before)
    })
  },
  async pause_twice() {
    const s = await Sandbox.create()
    assert.equal(await s.betaPause(), true)
    assert.equal(await s.pause(), false)
    assert.equal(await Sandbox.kill(s.sandboxId), true)
    assert.equal(await Sandbox.kill(s.sandboxId), false)
    await fails(e2b.SandboxError, () => Sandbox.connect(s.sandboxId))
  },
  // The memory is given up: files and variables are in another pod, the process is not.
  async pause_files() {
    await made({ timeoutMs: 120_000, envs: { MINE: 'mine' } }, async (s) => {
      await s.files.write('kept/file.txt', 'kept')
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      assert.equal(await pauseFiles(s), true)
      assert.equal(await pauseFiles(s), false)
      assert.equal((await Sandbox.getInfo(s.sandboxId)).state, 'paused')
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      assert.equal((await again.getInfo()).state, 'running')
      assert.equal((await again.commands.run('cat kept/file.txt; echo $MINE')).stdout, 'keptmine\n')
      assert.equal((await again.commands.list()).length, 0)
      assert.equal(await pauseFiles(again), true, 'it is paused a second time')
      await Sandbox.kill(s.sandboxId)
      await fails(e2b.SandboxError, () => Sandbox.connect(s.sandboxId))
    })
  },
  async snapshots() {
    await made({ timeoutMs: 120_000, envs: { MINE: 'first' } }, async (s) => {
      await s.files.write('kept/deep/file.txt', 'kept')
      await s.commands.run('ln -s file.txt kept/deep/link; chmod 640 kept/deep/file.txt')
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      const snap = await s.createSnapshot()
      assert((await s.commands.list()).some((p) => p.pid === h.pid))
      await s.files.write('kept/deep/file.txt', 'written later')
      const found = await Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems()
      assert.deepEqual(found.map((one) => one.snapshotId), [snap.snapshotId])
      const two = await Sandbox.create(snap.snapshotId, { timeoutMs: 120_000, envs: { MINE: 'second' } })
      try {
        assert.notEqual(two.sandboxId, s.sandboxId)
        const out = await two.commands.run('cat kept/deep/link; stat -c %a kept/deep/file.txt; echo $MINE')
        assert.equal(out.stdout, 'kept640\nsecond\n')
        assert.equal((await two.commands.list()).length, 0)
      } finally {
        await two.kill()
      }
      assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
      await fails(e2b.SandboxError, () => Sandbox.create(snap.snapshotId))
    })
  },
  async auto_pause_resume() {
    const paused = async (s) => (await Sandbox.getInfo(s.sandboxId)).state === 'paused'
    await made({ timeoutMs: 3000, lifecycle: { onTimeout: 'pause', autoResume: true } }, async (s) => {
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      await until('the pause', () => paused(s), 30)
      assert.equal((await s.commands.run('echo back')).stdout, 'back\n')
      assert((await s.commands.list()).some((p) => p.pid === h.pid))
      const info = await s.getInfo()
      assert.equal(info.state, 'running')
      assert(info.endAt - Date.now() > 250_000, `it ends at ${info.endAt}`)
    })
    await made({ timeoutMs: 3000, lifecycle: { onTimeout: 'pause', autoResume: false } }, async (s) => {
      await until('the pause', () => paused(s), 30)
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
    })
  },
  async auto_pause_files() {
    const s = await createPausingFiles()
    try {
      await s.files.write('kept.txt', 'kept')
      await s.setTimeout(1000)
      await until('the pause', async () => (await Sandbox.getInfo(s.sandboxId)).state === 'paused', 60)
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert.equal((await again.commands.list()).length, 0)
    } finally {
      await s.kill()
    }
  },
  async list_state() {
    const mine = { set: 'states', by: String(process.pid) }
    await made({ metadata: mine }, (one) => made({ metadata: mine }, (two) => made({ metadata: mine }, async (three) => {
      await one.pause()
      await three.pause()
      for (const [state, want] of [[['paused'], [one, three]], [['running'], [two]], [['running', 'paused'], [one, two, three]]]) {
        const pages = Sandbox.list({ query: { metadata: mine, state }, limit: 1 })
        const ids = []
        while (pages.hasNext) ids.push(...(await pages.nextItems()).map((i) => i.sandboxId))
        assert.deepEqual(ids.sort(), want.map((s) => s.sandboxId).sort())
      }
    })))
  },
  // Another process, which knows only the ID.
  async connect_process(s) {
    await s.files.write('shared.txt', 'from the first')
    const code = `const { Sandbox } = require('e2b'); (async () => { const s = await Sandbox.connect(process.argv[1]);
      console.log(await s.files.read('shared.txt'), (await s.commands.run('echo and second')).stdout.trim()) })()`
    const out = await new Promise((resolve, reject) => {
      execFile(process.execPath, ['-e', code, s.sandboxId], { cwd: folder, timeout: 60_000 },
        (err, stdout, stderr) => (err ? reject(err) : resolve(stdout + stderr)))
    })
    assert.equal(out.trim(), 'from the first and second')
  },
  async access_secure(s) {
    const host = s.getHost(49983)
    assert.equal((await fetchHost(host, '/envs')).status, 401)
    assert.equal((await fetchHost(host, '/envs', { 'X-Access-Token': 'wrong' })).status, 401)
    assert.equal((await fetchHost(host, '/init')).status, 404)
  },
  async access_public(s) {
    await s.files.write('index.html', 'served by ' + s.sandboxId)
    await serve(s, 8000)
    assert.deepEqual(await fetchHost(s.getHost(8000)), { status: 200, text: 'served by ' + s.sandboxId })
    assert.equal((await fetchHost(s.getHost(8001))).status, 502)
  },
  async access_private() {
    await made({ network: { allowPublicTraffic: false } }, async (s) => {
      await s.files.write('index.html', 'private')
      await serve(s, 8000)
      const ask = (headers) => fetchHost(s.getHost(8000), '/', headers)
      assert.equal((await ask({})).status, 403)
      assert.equal((await ask({ 'e2b-traffic-access-token': 'wrong' })).status, 403)
      assert.deepEqual(await ask({ 'e2b-traffic-access-token': s.trafficAccessToken }), { status: 200, text: 'private' })
    })
  },
  async metrics(s) {
    const m = (await s.getMetrics()).at(-1)
    assert(m.cpuCount > 0 && 0 < m.memUsed && m.memUsed < m.memTotal && 0 < m.diskUsed && m.diskUsed < m.diskTotal, JSON.stringify(m))
  },
  async host_name(s) {
    assert.equal(s.getHost(3000), `3000-${s.sandboxId}.localhost:${new URL(GATEWAY).port}`)
  },
  async error_not_found(s) {
    await fails(e2b.NotFoundError, () => s.files.read('/nowhere'))
    await fails(e2b.NotFoundError, () => Sandbox.getInfo(MISSING))
    await fails(e2b.NotFoundError, () => Sandbox.connect(MISSING))
  },
  async error_auth() {
    await fails(e2b.AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))
  },
  // Twenty wrong keys at once are too many, and one more each second. From an
  // address of its own, so that other cases are not limited.
  async error_rate_limit() {
    const opts = { apiKey: 'e2b_' + '0'.repeat(40), apiUrl: ELSEWHERE }
    const said = await Promise.all(Array.from({ length: 40 }, () => Sandbox.getInfo(MISSING, opts).then(() => null, (err) => err)))
    const limited = said.filter((err) => err instanceof e2b.RateLimitError).length
    const wrong = said.filter((err) => err instanceof e2b.AuthenticationError).length
    assert(limited + wrong === 40 && limited >= 5 && wrong >= 20, said.map((err) => `${err?.name}: ${err?.message}`).join('; '))
  },
  async error_gone() {
    const s = await Sandbox.create()
    await s.commands.run('true')
    await s.kill()
    for (let i = 0; i < 3; i++) gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
    gone(await fails(e2b.SandboxError, () => s.files.read('x')))
  },
  // Killed from elsewhere while a command runs, which says something or nothing.
  async error_killed() {
    for (const command of ['sleep 1000', 'while :; do echo x; sleep 0.1; done']) {
      const s = await Sandbox.create()
      const handle = await s.commands.run(command, { background: true })
      const waiting = fails(e2b.SandboxError, () => handle.wait())
      waiting.catch(() => {}) // looked at below
      await Sandbox.kill(s.sandboxId)
      const killed = performance.now()
      gone(await waiting)
      const took = performance.now() - killed
      assert(took < 30_000, `the SDK knew ${took} ms after the kill`) // a command of its own would end after 60 s
    }
  },
  async error_template() {
    await fails(e2b.SandboxError, () => Sandbox.create('no-such-template'))
  },
}

const shared = await Sandbox.create({ timeoutMs: 600_000 })
for (const [name, run] of Object.entries(cases)) {
  const began = performance.now()
  let error = ''
  try {
    await Promise.race([run(shared), pause(90_000, null, { ref: false }).then(() => { throw new Error('no end after 90 s') })])
  } catch (err) {
    error = `${err?.name}: ${err?.message}`
  }
  console.log(JSON.stringify({ name, ok: !error, error, ms: Math.round(performance.now() - began) }))
}
await shared.kill()
