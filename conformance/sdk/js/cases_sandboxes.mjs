// Cases of what is made, found, extended and ended.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { GATEWAY, Sandbox, folder, made, own, until } from './suite.mjs'

export default {
  async create_metadata_envs() {
    await made({ metadata: { purpose: 'a b&c=d' }, envs: { GREETING: 'hello world' }, timeoutMs: 120_000 }, async (s) => {
      assert.deepEqual(own((await s.getInfo()).metadata), { purpose: 'a b&c=d' })
      assert.equal((await s.commands.run('echo $GREETING')).stdout, 'hello world\n')
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
      assert.deepEqual(found.map((i) => [i.sandboxId, own(i.metadata)]), [[s.sandboxId, odd]])
      assert.deepEqual(await Sandbox.list({ query: { metadata: { a: 'other' } } }).nextItems(), [])
    })
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
  async metrics(s) {
    const m = (await s.getMetrics()).at(-1)
    assert(m.cpuCount > 0 && 0 < m.memUsed && m.memUsed < m.memTotal && 0 < m.diskUsed && m.diskUsed < m.diskTotal, JSON.stringify(m))
  },
  async host_name(s) {
    assert.equal(s.getHost(3000), `3000-${s.sandboxId}.localhost:${new URL(GATEWAY).port}`)
  },
}
