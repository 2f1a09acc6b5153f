import { execFile } from 'node:child_process'
import path from 'node:path'
import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { insertOrFail } from '../../../src'
import type { DoctorReport } from '../../../src/doctor'
import { type CommandLine, openCommandLine } from '../../support/command-line'
import { useDatabase } from '../../support/database'
import { ENTITIES, fill, Page } from './entities'

const db = useDatabase()
const PATIENCE = { timeout: 120_000 }
const checkout = path.resolve(import.meta.dirname, '../../..')

let commands: CommandLine
let dataSource: DataSource
beforeAll(async () => {
  commands = await openCommandLine(db.url)
  dataSource = await db.dataSource(ENTITIES)
  await fill(dataSource)
  const entities = JSON.stringify(path.join(import.meta.dirname, 'entities.ts'))
  await commands.write(
    'data-source.js',
    `const { DataSource } = require('typeorm')
     exports.dataSource = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities: require(${entities}).ENTITIES })`,
  )
}, PATIENCE.timeout)
afterAll(() => commands.remove())

interface Ended {
  readonly code: unknown
  readonly stdout: string
  readonly stderr: string
}

async function ask(...args: readonly string[]): Promise<Ended> {
  const all = ['--import', 'tsx', path.join(checkout, 'src/cli/main.ts'), 'doctor', ...args]
  const env = { PATH: process.env['PATH'], DATABASE_URL: db.url }
  return await new Promise((resolve) => {
    execFile(process.execPath, all, { cwd: checkout, env }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr })
    })
  })
}

test('where nothing is wrong it ends with 0 and says what it read', PATIENCE, async () => {
  const { code, stdout } = await ask('-d', `${commands.folder}/data-source.js`, '--entity', 'Page')
  expect(code).toBe(0)
  expect(stdout).toBe('Page.url: 10 rows\n0 errors, 0 warnings, 0 information.\n')
})

test('where something is wrong it ends with 1, for a person and as JSON', PATIENCE, async () => {
  const client = await db.client()
  await client.query(`insert into page (url, "urlHash") values ('HTTP://secret/', md5('HTTP://secret/')::uuid)`)
  const told = await ask('-d', `${commands.folder}/data-source.js`, '--entity', 'page')
  expect(told.code).toBe(1)
  expect(told.stdout).toMatchInlineSnapshot(`
    "Page.url: 11 rows
    error text.unnormalized of Page.url: 1
      --json prints the keys of the first rows.
      Run typeorm-unique-text adopt, which normalizes texts. Names are normalized by the lines in docs/changing-a-declaration.md.
    1 error, 0 warnings, 0 information.
    "
  `)
  const { code, stdout } = await ask('-d', `${commands.folder}/data-source.js`, '--json')
  expect(code).toBe(1)
  const { healthy, findings } = JSON.parse(stdout) as DoctorReport
  expect(healthy).toBe(false)
  expect(findings.find(({ severity }) => severity === 'error')).toEqual({
    code: 'text.unnormalized',
    severity: 'error',
    entity: 'Page',
    property: 'url',
    count: 1,
    keys: [{ id: 11 }],
    next: expect.any(String) as string,
  })
  await client.query(`delete from page where id = 11`)
  await insertOrFail(dataSource.manager, Page, { url: 'http://example.com/11' })
})

test('what is missing takes a line for each kind, and says what merging needs', PATIENCE, async () => {
  const client = await db.client()
  await client.query(`begin; alter table page drop column "urlHash" cascade; set local session_replication_role = replica;
    insert into page (url) values ('http://example.com/1'), ('http://example.com/1');
    insert into visit ("pageId") select id from page; commit`)
  const { stdout } = await ask('-d', `${commands.folder}/data-source.js`, '--entity', 'page')
  const told = stdout.replaceAll(/(?:IDX|CHK)_\w+/gu, 'NAME')
  expect(told).toMatch(
    /^error guard\.missing of Page\.url: \d; unique_text_\w+, .*\n {2}Run typeorm-unique-text adopt, /mu,
  )
  expect(told.match(/guard\.missing/gu)).toHaveLength(1)
  expect(told).toContain('referred to by 2 rows of public.visit (pageId), without an index: make one before you merge')
})

test.each([
  ['an entity that is not there', ['--entity', 'Nothing'], 'Nothing'],
  ['an entity that declares nothing', ['--entity', 'Visit'], 'Visit'],
  ['an option of the import', ['--set', 'url=a'], '--set'],
])('%s is wrong usage', PATIENCE, async (_, args, named) => {
  const { code, stdout, stderr } = await ask('-d', `${commands.folder}/data-source.js`, ...args)
  expect(code).toBe(2)
  expect(stdout).toBe('')
  expect(stderr).toContain(named)
})
