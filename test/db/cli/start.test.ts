import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/database'

const db = useDatabase()
const ROOT = path.join(__dirname, '../../..')

async function example(name: string, args: readonly string[] = [], databaseUrl = db.url): Promise<string> {
  const running = promisify(execFile)(process.execPath, ['--import', 'tsx', `scripts/demo/${name}.ts`, ...args], {
    cwd: ROOT,
    env: { ...process.env, DATABASE_URL: databaseUrl },
  })
  running.child.stdin?.end()
  return (await running).stdout
}

/** The numbers of the table, by their names. */
function tableOf(stdout: string): Record<string, number> {
  const rows = stdout.matchAll(/^([a-zA-Z ]+?) {2,}([\d,.]+)$/gm)
  return Object.fromEntries([...rows].map(([, name = '', value = '']) => [name, Number(value.replaceAll(',', ''))]))
}

test(
  'npm start imports the list of the example; the second time it finds everything and creates nothing',
  {
    timeout: 180_000,
  },
  async () => {
    const first = await example('start')
    expect(first).toContain('Postgres: DATABASE_URL\nMigrations run: 1\nImporting examples/urls.txt\n')
    expect(first).toMatch(/the first 5 rejected lines:\n(?: {2}line \d+: its? .*\n){5}/)
    expect(first).toContain('See the rows: npm run show')
    const table = tableOf(first)
    const lines = readFileSync(path.join(ROOT, 'examples/urls.txt'), 'utf8').split('\n').length - 1
    expect(table).toMatchObject({ lines, rejected: 380, blank: 6 })
    expect(Number(table['created']) + Number(table['found'])).toBe(lines - 386)
    expect(table['created']).toBeGreaterThan(3_000)
    expect(table['found']).toBeGreaterThan(2_000)
    expect(table['collisions']).toBeGreaterThan(0)
    expect(table['lines per second']).toBeGreaterThan(0)

    const second = await example('start')
    expect(second).toContain('Migrations: nothing to run')
    expect(tableOf(second)).toMatchObject({ lines, created: 0, found: lines - 386, rejected: 380 })

    const shown = await example('show')
    expect(shown).toContain(`${table['created']} URLs of `)
    expect(shown).toMatch(/^ *\d+ {2}[0-9a-f-]{36} {7}1 {2}https?:/m)
  },
)

test('npm run show before npm start says what to do', async () => {
  const empty = new URL(db.url)
  empty.searchParams.set('options', '-c search_path=nowhere')
  await expect(example('show', [], empty.href)).rejects.toMatchObject({
    code: 1,
    stderr: 'relation "urls" does not exist (SQLSTATE 42P01)\nNothing is stored yet: run npm start.\n',
  })
})

test('npm run show prints no control character that a row holds', async () => {
  await example('start', ['-'])
  const client = await db.client()
  // What an older version, or a restored dump, may hold.
  const { rows } = await client.query<{ name: string }>(
    `SELECT quote_ident(conname) AS name FROM pg_constraint WHERE conrelid = 'urls'::regclass AND contype = 'c'`,
  )
  for (const { name } of rows) await client.query(`ALTER TABLE urls DROP CONSTRAINT ${name}`)
  await client.query(`INSERT INTO urls (id, scheme, host, port, path) OVERRIDING SYSTEM VALUE
    VALUES (-1, 'http', 'a.example', 0, E'/\\u001b]0;gone\\u0007\\u009b2J')`)
  const shown = await example('show')
  expect(shown).toContain('/\\u001b]0;gone\\u0007')
  // oxlint-disable-next-line no-control-regex
  expect(shown).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
})

test('Ctrl-C while ormconfig.ts is compiled ends npm start by the signal, with one word', async () => {
  // What Ctrl-C does: the signal comes, and the compiler, a process of its own, is gone.
  const hooks = `export async function load(url, context, next) {
    if (!url.includes('ormconfig')) return await next(url, context)
    process.kill(process.pid, 'SIGINT')
    throw new Error('The service was stopped')
  }`
  const preload = `import { register } from 'node:module'
    register(${JSON.stringify(moduleOf(hooks))})`
  const args = ['--import', 'tsx', '--import', moduleOf(preload), 'scripts/demo/start.ts']
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env: { ...process.env, DATABASE_URL: db.url },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let stderr = ''
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString()))
  const [, signal] = (await once(child, 'close')) as [number | null, string | null]
  expect({ signal, stderr }).toEqual({ signal: 'SIGINT', stderr: 'Stopped.\n' })
})

const moduleOf = (source: string): string => `data:text/javascript,${encodeURIComponent(source)}`

test('npm start says what is wrong with a list that is not there', async () => {
  const starting = example('start', ['no-such-list.txt'])
  await expect(starting).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('ENOENT') })
})
