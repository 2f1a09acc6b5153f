import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { useDatabase } from '../support/database'

const db = useDatabase()
const ROOT = path.join(__dirname, '../..')

async function example(name: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--import', 'tsx', `scripts/demo/${name}.ts`, ...args],
    {
      cwd: ROOT,
      env: { ...process.env, DATABASE_URL: db.url },
    },
  )
  return stdout
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
    expect(first).toMatch(/the first 5 rejected lines:\n(?: {2}line \d+: it .*\n){5}/)
    expect(first).toContain('See the rows: npm run show')
    const table = tableOf(first)
    const lines = readFileSync(path.join(ROOT, 'examples/urls.txt'), 'utf8').split('\n').length - 1
    expect(table).toMatchObject({ lines, rejected: 380, blank: 6 })
    expect(Number(table['created']) + Number(table['found'])).toBe(lines - 386)
    expect(table['created']).toBeGreaterThan(3_000)
    expect(table['found']).toBeGreaterThan(2_000)
    expect(table['collisions']).toBeGreaterThan(0)
    expect(table['URLs per second']).toBeGreaterThan(0)

    const second = await example('start')
    expect(second).toContain('Migrations: nothing to run')
    expect(tableOf(second)).toMatchObject({ lines, created: 0, found: lines - 386, rejected: 380 })

    const shown = await example('show')
    expect(shown).toContain(`${table['created']} URLs of `)
    expect(shown).toMatch(/^ *\d+ {2}[0-9a-f-]{36} {7}1 {2}https?:/m)
  },
)

test('npm start says what is wrong with a list that is not there', async () => {
  const starting = example('start', 'no-such-list.txt')
  await expect(starting).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('ENOENT') })
})
