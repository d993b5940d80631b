// Cases of commands and terminals.
import assert from 'node:assert/strict'
import { BIG, PARALLEL, e2b, fails, hasText, until } from './suite.mjs'

export default {
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
    await until('the new size', () => hasText(s, '/tmp/size', '44 55'))
    assert.equal(await s.pty.kill(t.pid), true)
  },
}
