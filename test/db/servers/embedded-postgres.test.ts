import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import {
  chmod,
  cp,
  lstat,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startEmbeddedPostgres } from '../../../scripts/embedded-postgres'
import { checkedCopy, completeBinaries, findBinaries } from '../../../scripts/server-binaries'

const ROOT = path.join(__dirname, '../../..')

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'unique-text-embedded-'))
  await chmod(folder, 0o755)
})
afterAll(() => rm(folder, { recursive: true }))

async function connects(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  try {
    await client.connect()
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

/** The binaries as an npm that runs no scripts leaves them: without the libraries' links. */
async function withoutLinks(name: string): Promise<string> {
  const native = path.join(folder, name, 'native')
  await cp(path.resolve((await findBinaries()).postgres, '../..'), native, {
    recursive: true,
    verbatimSymlinks: true,
  })
  for (const file of await readdir(path.join(native, 'lib'))) {
    const link = path.join(native, 'lib', file)
    if ((await lstat(link)).isSymbolicLink()) await unlink(link)
  }
  return native
}

async function versionOf(native: string): Promise<string> {
  return (await promisify(execFile)(path.join(native, 'bin/postgres'), ['--version'])).stdout
}

test('the server runs though npm ran no install script: we make the links of its libraries', async () => {
  const native = await withoutLinks('no-scripts')
  await expect(versionOf(native)).rejects.toThrow(/libicu|librar/)
  await Promise.all([completeBinaries(native), completeBinaries(native)])
  expect(await versionOf(native)).toMatch(/^postgres \(PostgreSQL\) \d+/)
})

test('a copy of the binaries leads nowhere outside, so it outlives the clone that it was made from', async () => {
  const native = await withoutLinks('first-clone')
  const copy = await checkedCopy(native, path.join(folder, 'shelter'))
  await rm(path.dirname(native), { recursive: true })
  const entries = await readdir(copy, { recursive: true, withFileTypes: true })
  const links = entries
    .filter((entry) => entry.isSymbolicLink())
    .map(({ parentPath, name }) => path.join(parentPath, name))
  expect(links.length).toBeGreaterThan(0)
  for (const link of links) expect(path.dirname(await realpath(link))).toBe(path.dirname(link))
  expect(await versionOf(copy)).toMatch(/^postgres/)
})

test('a damaged copy is found before it is used, and made again', async () => {
  const native = await withoutLinks('original')
  const place = path.join(folder, 'damaged')
  const copy = await checkedCopy(native, place)
  const before = await stat(copy)
  expect((await stat(await checkedCopy(native, place))).ino).toBe(before.ino)
  const [library = ''] = (await readdir(path.join(copy, 'lib'))).filter((file) =>
    /^libicuuc\.(?:so\.\d+|\d+\.dylib)$/.test(file),
  )
  const link = path.join(copy, 'lib', library)
  const damages = [
    async () => await rm(path.join(copy, 'bin/initdb')),
    async () => await writeFile(path.join(copy, 'share/postgres.bki'), 'cut short'),
    async () => await rm(link).then(async () => await symlink('/nowhere', link)),
  ]
  for (const damage of damages) {
    await damage()
    expect(await checkedCopy(native, place)).toBe(copy)
    expect(await versionOf(copy)).toMatch(/^postgres/)
    expect(existsSync(path.join(copy, 'bin/initdb'))).toBe(true)
    expect(await readlink(link)).not.toBe('/nowhere')
  }
  expect(await readdir(folder)).not.toContainEqual(expect.stringMatching(/^damaged\./))
})

test('commands that start at once on one new data folder share one server, and the last one stops it', async () => {
  const dataFolder = path.join(folder, 'shared')
  const servers = await Promise.all([1, 2, 3].map(async () => await startEmbeddedPostgres({ dataFolder })))
  const [first, second, third] = servers
  if (!first || !second || !third) throw new Error('three were started')
  expect(new Set(servers.map(({ pid }) => pid)).size).toBe(1)
  expect(servers.filter(({ shared }) => !shared)).toHaveLength(1)
  await Promise.all([first.stop(), third.stop()])
  expect(await connects(second.url)).toBe(true)
  const fourth = await startEmbeddedPostgres({ dataFolder })
  expect(fourth).toMatchObject({ pid: second.pid, shared: true })
  await Promise.all([second.stop(), fourth.stop()])
  expect(await connects(second.url)).toBe(false)
  const stopping = await startEmbeddedPostgres({ dataFolder })
  const [, next] = await Promise.all([stopping.stop(), startEmbeddedPostgres({ dataFolder })])
  expect(await connects(next.url)).toBe(true)
  await next.stop()
  expect(await readdir(`${dataFolder}.users`)).toEqual([])
  expect((await readdir(folder)).filter((name) => name.startsWith('shared'))).toEqual(['shared', 'shared.users'])
})

test('each data folder has a password of its own, in a file that only the server can read', async () => {
  const [one, other] = await Promise.all([startEmbeddedPostgres(), startEmbeddedPostgres()])
  const password = new URL(one.url).password
  expect(password).toMatch(/^[\w-]{32}$/)
  expect(new URL(other.url).password).not.toBe(password)
  const file = path.join(one.dataFolder, 'unique-text-password')
  expect(await readFile(file, 'utf8')).toBe(password)
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  expect((await stat(one.dataFolder)).mode & 0o077).toBe(0)
  for (const guess of ['postgres', '', new URL(other.url).password]) {
    const url = new URL(one.url)
    url.password = guess
    expect(await connects(url.href)).toBe(false)
  }
  await Promise.all([one.stop(), other.stop()])
})

test('a temporary server leaves nothing behind', async () => {
  const { dataFolder, stop } = await startEmbeddedPostgres()
  expect(existsSync(dataFolder)).toBe(true)
  await stop()
  expect(existsSync(path.dirname(dataFolder))).toBe(false)
})

test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('nor does one whose process gets %s', async (signal) => {
  const script = `require('./scripts/embedded-postgres.ts').startEmbeddedPostgres().then(({ url, dataFolder }) =>
    { console.log(JSON.stringify({ url, dataFolder })); setInterval(() => {}, 1000) })`
  const child = spawn(process.execPath, ['--import', 'tsx', '-e', script], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output] = (await once(child.stdout, 'data')) as [Buffer]
  const { url, dataFolder } = JSON.parse(output.toString()) as { url: string; dataFolder: string }
  expect(await connects(url)).toBe(true)
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
  expect(existsSync(path.dirname(dataFolder))).toBe(false)
  expect(await connects(url)).toBe(false)
})

test('a place that cannot be written to is named, with what to do', async () => {
  const file = path.join(folder, 'no-folder')
  await writeFile(file, '', { mode: 0o755 })
  const starting = startEmbeddedPostgres({ dataFolder: path.join(file, 'postgres') })
  await expect(starting).rejects.toThrow(`Cannot write to ${file} (`)
  await expect(starting).rejects.toThrow('Set DATABASE_URL, or move the clone')
})

test('what the variables of libpq say of another server reaches neither ours nor the processes that use it', async () => {
  const given = { PGSSLMODE: 'require', PGOPTIONS: '-c search_path=nowhere', PGHOST: 'nowhere.example', PGPORT: '1' }
  Object.assign(process.env, given)
  const { url, stop } = await startEmbeddedPostgres()
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', ASKING, url], { cwd: ROOT })
    expect(stdout).toBe('"$user", public\n')
    process.env['PGSSLMODE'] = 'require'
    expect(await connects(url)).toBe(true)
  } finally {
    for (const name of Object.keys(given)) delete process.env[name]
    await stop()
  }
})

const ASKING = `
const client = new (require('pg').Client)({ connectionString: process.argv[1] })
client.connect().then(() => client.query('show search_path')).then(({ rows }) => {
  console.log(rows[0].search_path)
  return client.end()
})`
