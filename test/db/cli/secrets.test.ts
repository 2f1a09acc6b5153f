import { writeFileSync } from 'node:fs'
import * as fc from 'fast-check'
import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { adopt } from '../../../src/adopt'
import { runDoctor } from '../../../src/cli/commands'
import { runImport } from '../../../src/cli/import'
import { runAdopt } from '../../../src/cli/adopt'
import { openList } from '../../../src/cli/list'
import { parseInvocation } from '../../../src/cli/usage'
import { describeError } from '../../../src/cli/terminal'
import { normalizer, Refusal } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, entity, key, text } from '../../support/entity'
import { newList } from '../adopt/restore'

const db = useDatabase()
const strict = normalizer('strict', 1, (given) => {
  if (given.startsWith('bad')) throw new Refusal('it begins with bad')
  return given.toLowerCase()
})
const Page = entity('Page', {
  id: key('text'),
  tenant: column('text'),
  url: text({ scope: ['tenant'], normalize: strict }),
})
let client: Client
let dataSource: DataSource

beforeAll(async () => {
  client = await db.client()
  dataSource = await db.dataSource([Page], { synchronize: false })
})

/** Two groups of equal texts, one of them with bookmarks that clash; two that become equal; a refused one; a NULL. */
async function prepare([first, second, third, tenant, words]: readonly string[]): Promise<void> {
  await client.query('drop schema public cascade; create schema public')
  await client.query(`create table page (id text, tenant text, url text, constraint "PK_742f4117e065c5b6ad21b37ba1f" primary key (id));
    create table bookmark (member integer, page text references page (id), primary key (member, page));
    insert into page (id, tenant, url) select '${first}' || i, '${tenant}', '${words}' from generate_series(1, 3) as i;
    insert into page (id, tenant, url) values ('${second}', '${tenant}', 'A${words}'), ('${second} 2', '${tenant}', 'a${words}'),
      ('${third}', '${tenant}', 'bad${words}'), ('${third} 2', '${tenant}', null);
    insert into bookmark select 1, '${first}' || i from generate_series(1, 2) as i`)
}

const TARGET = ['-d', 'o.ts', '--entity', 'Page']
const KEEP = ['--rejected', 'keep']
const LIST = 'LIST'

/** Runs a command, and returns all that it prints, and the message of an error that ends it. */
async function printed(...args: readonly string[]): Promise<string> {
  let out = ''
  const stream = { write: (part: string) => ((out += part), true) } as never
  const invocation = parseInvocation(args)
  const run = { dataSource, streams: { stdout: stream, stderr: stream }, signal: new AbortController().signal }
  try {
    if ('pace' in invocation) await runAdopt({ ...run, invocation })
    else if (invocation.kind === 'doctor') await runDoctor({ ...run, invocation })
    else if (invocation.kind === 'import') await runImport({ ...run, invocation }, await openList(invocation.list))
    else throw new TypeError('Another command.')
  } catch (error) {
    out += describeError(error)
  }
  return out
}

const secret = fc.stringMatching(/^[a-z0-9]{12}$/).map((random) => `secret${random}`)

/** Every command, in an order in which each has something to report. */
const COMMANDS: readonly (readonly [name: string, expected: RegExp, args: readonly string[]])[] = [
  ['the doctor before', /text\.twice of Page\.url: 2/, ['doctor', ...TARGET]],
  ['a dry run', /texts that would become equal/, ['adopt', ...TARGET, '--dry-run']],
  ['adopt with NULLs', /hold NULL in "url"/, ['adopt', ...TARGET]],
  ['adopt with a refused text', /rejects the texts of 1 rows/, ['adopt', ...TARGET]],
  ['adopt', /2 texts are held by several rows.*The table is adopted/s, ['adopt', ...TARGET, ...KEEP]],
  ['adopt again', /1 rows keep texts that the normalizer rejects/, ['adopt', ...TARGET, ...KEEP]],
  ['the doctor after', /text\.rejected of Page\.url: 1/, ['doctor', ...TARGET]],
  [
    'a dry merge',
    /Rows kept unchanged: 1/,
    ['adopt', ...TARGET, ...KEEP, '--dry-run', '--merge', 'oldest', '--list', LIST],
  ],
  ['a merge', /Rows kept unchanged: 1/, ['adopt', ...TARGET, ...KEEP, '--merge', 'oldest', '--list', LIST]],
  ['an import', /rejected lines/, ['import', ...TARGET, '--set', 'tenant=open', LIST]],
  ['abandon', /is abandoned/, ['abandon', ...TARGET]],
]

test('no command prints a key, a scope or a text of a row, but with --json', async () => {
  const property = fc.asyncProperty(fc.uniqueArray(secret, { minLength: 5, maxLength: 5 }), async (all) => {
    const wrong: string[] = []
    await prepare(all)
    for (const [name, expected, args] of COMMANDS) {
      const list = newList()
      if (args[0] === 'import') writeFileSync(list, all.map((one) => `bad${one}\n`).join(''))
      const out = await printed(...args.map((one) => (one === LIST ? list : one)))
      const isShown = all.some((one) => out.includes(one))
      if (isShown || !expected.test(out)) wrong.push(`${name}: ${out}`)
      if (name === 'adopt with NULLs') await client.query('delete from page where url is null')
    }
    expect(wrong).toEqual([])
  })
  await fc.assert(property, { numRuns: 3 })
})

test('with --json, and in code, the keys of the first rows are there', async () => {
  await prepare(['first', 'second', 'third', 'tenant', 'words'])
  expect(await printed('adopt', ...TARGET, '--json')).toContain('"keys":[{"id":"third 2"}]')
  await client.query('delete from page where url is null')
  expect(await printed('adopt', ...TARGET, '--json')).toContain('"keys":[{"id":"third"}]')
  const failure: unknown = await adopt(dataSource, Page).catch((error: unknown) => error)
  expect(failure).toMatchObject({ reason: 'rejected', keys: [{ id: 'third' }] })
  const report = await printed('adopt', ...TARGET, ...KEEP, '--json')
  expect(report).toContain('[{"id":"first1"},{"id":"first2"},{"id":"first3"}]')
  expect(report).toContain('"rejected":[{"key":{"id":"third"}')
})
