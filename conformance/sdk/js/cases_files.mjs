// Cases of files.
import assert from 'node:assert/strict'
import { e2b, until } from './suite.mjs'

export default {
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
    await s.files.write('/app/src/main.py', 'x')
    assert.deepEqual([(await s.files.getInfo('/app')).owner, (await s.files.getInfo('/app/src/main.py')).owner], ['user', 'user'])
    assert.equal(await s.files.makeDir('/workspace'), true)
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
}
