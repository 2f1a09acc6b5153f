import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { QueryArrayResult } from 'pg'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { STEVENS } from '../../support/md5-collisions'
import { readExample } from '../../package/readme'

const db = useDatabase()
const client = db.useClient({ emptied: true })
const checkout = path.resolve(import.meta.dirname, '../../..')
const { steps } = readExample(readFileSync(path.join(checkout, 'docs/sql.md'), 'utf8'))

/** Runs the command without a DataSource. */
function printed(): string {
  const args = ['--import', 'tsx', path.join(checkout, 'src/cli/main.ts'), 'sql']
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { cwd: checkout, encoding: 'utf8' })
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  return stdout
}

const TRUTH: Readonly<Record<string, string>> = { true: 't', false: 'f' }

/** Prints the rows of all statements as `psql --no-align --tuples-only` does. */
async function psql(sql: string): Promise<string> {
  const types = { getTypeParser: () => (value: string | Buffer) => String(value) }
  const results: unknown = await client.query({ text: sql, rowMode: 'array', types })
  const lines = [results].flat().flatMap((one) => (one as QueryArrayResult).rows)
  return lines.map((row) => row.map((value: string) => TRUTH[value] ?? value).join('|')).join('\n')
}

test('the page docs/sql.md needs only what the command prints', async () => {
  await client.query(printed())
  const lines: (string | undefined)[] = []
  for (const { command, output } of steps) {
    const printed = await psql(command)
    lines.push(output === undefined ? undefined : printed)
  }
  expect(lines).toHaveLength(7)
  expect(lines).toEqual(steps.map(({ output }) => output))
})

test('a table that TypeORM has never seen keeps two texts of one MD5, and neither of them twice', async () => {
  await client.query(printed())
  await client.query(steps[0]?.command ?? '')
  const [first, second] = STEVENS
  const insert = async (text: string): Promise<unknown> =>
    (await client.query('INSERT INTO page (url) VALUES ($1) ON CONFLICT (url_hash, url_number) DO NOTHING', [text]))
      .rowCount
  expect([await insert(first), await insert(second), await insert(first), await insert(second)]).toEqual([1, 1, 0, 0])
})
