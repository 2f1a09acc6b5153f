import { afterAll, beforeAll, expect, test } from 'vitest'
import { type CommandLine, openCommandLine } from '../../support/command-line'
import { useDatabase } from '../../support/database'

const db = useDatabase()
const PATIENCE = { timeout: 300_000 }

let commands: CommandLine
const client = db.useClient()

beforeAll(async () => {
  commands = await openCommandLine(db.url)
  for (const [stage, entities] of Object.entries(STAGES)) await commands.write(`${stage}.js`, dataSource(entities))
})
afterAll(() => commands.remove())

/** The same tables in the course of time. */
const STAGES = {
  plain: `[
    schema({ name: 'User', tableName: 'user', columns: { id, handle: text } }),
    schema({ name: 'Organization', tableName: 'organization', columns: { id, slug: text } }),
    schema({ name: 'Comment', tableName: 'comment', columns: { id, tenant: integer, body: text } }),
  ]`,
  kept: `[
    Name,
    schema(uniqueNameSchema({ name: 'User', tableName: 'user', columns: { id } }, { handle: named })),
    schema(uniqueNameSchema({ name: 'Organization', tableName: 'organization', columns: { id } }, { slug: named })),
    schema(numberWithinSchema(
      { name: 'Comment', tableName: 'comment', columns: { id, tenant: integer, body: text } },
      { number: { scope: ['tenant'], count: true } },
    )),
  ]`,
  renamed: `[
    Name,
    schema(uniqueNameSchema({ name: 'User', tableName: 'user', columns: { id, age: maybe } }, { nick: named })),
    schema(uniqueNameSchema({ name: 'Organization', tableName: 'organization', columns: { id } }, { slug: named })),
    schema(numberWithinSchema(
      { name: 'Comment', tableName: 'comment', columns: { id, tenant: integer, body: text, stars: maybe } },
      { position: { scope: ['tenant'], count: true } },
    )),
  ]`,
  gone: `[
    Name,
    schema({ name: 'User', tableName: 'user', columns: { id, age: maybe, nick: text } }),
    schema(uniqueNameSchema({ name: 'Organization', tableName: 'organization', columns: { id } }, { slug: named })),
    schema({ name: 'Comment', tableName: 'comment', columns: { id, tenant: integer, body: text, stars: maybe } }),
  ]`,
}

const dataSource = (entities: string): string => `
const { DataSource, EntitySchema } = require('typeorm')
const { Name, uniqueNameSchema } = require(src + '/names')
const { numberWithinSchema } = require(src + '/numbers')
const { withUniqueText } = require(src)

const schema = (options) => new EntitySchema(options)
const [id, text, integer, maybe] = [
  { type: 'integer', primary: true, generated: 'identity' },
  { type: 'text' },
  { type: 'integer' },
  { type: 'integer', nullable: true },
]
const named = { namespace: 'handle', former: 'redirect' }

exports.dataSource = withUniqueText(new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: ${entities},
  migrations: [process.env.FOLDER + '/migrations/*.js'],
}))
`

async function typeorm(command: string, stage: keyof typeof STAGES, ...args: readonly string[]): Promise<string> {
  const { code, output } = await commands.typeorm(command, '-d', `${commands.folder}/${stage}.js`, ...args)
  if (code !== 0) throw new Error(`typeorm ${command} for ${stage} ended with ${code}:\n${output}`)
  return output
}

/** Generates and runs; a second generate, and schema:log, find nothing then. */
async function step(stage: keyof typeof STAGES): Promise<void> {
  const file = (name: string): string => `${commands.folder}/migrations/${name}`
  await typeorm('migration:generate', stage, '--outputJs', file(stage))
  expect(await typeorm('migration:run', stage)).toMatch(/has been executed successfully/)
  await nothingLeft(stage)
  expect(await typeorm('schema:log', stage)).toContain('Your schema is up to date')
}

async function nothingLeft(stage: keyof typeof STAGES): Promise<void> {
  const { code, output } = await commands.typeorm(
    'migration:generate',
    '-d',
    `${commands.folder}/${stage}.js`,
    `${commands.folder}/migrations/Nothing`,
  )
  expect(output).toContain('No changes in database schema were found')
  expect(code).toBe(1)
}

const lines = async (sql: string): Promise<string> =>
  (await client.query<{ line: string }>(sql)).rows.map(({ line }) => line).join(', ')
const names = async (): Promise<string> =>
  await lines(
    `select concat(replace(holder::text, '"', ''), '.', holder_column, holder_key, ' ', text, ' ', state) as line from names order by 1`,
  )
/** The numbers, and how many rows each scope has. */
const numbers = async (column: string): Promise<string> => {
  const given = await lines(`select concat(id, ':', "${column}") as line from comment order by id`)
  const scopes = await lines(
    `select oid::regclass::text as line from pg_class where relname like 'numbers%scopes%' and relkind = 'r'`,
  )
  return `${given}; ${await lines(`select concat(s0, '#', sum(n)) as line from ${scopes} group by s0 order by s0`)}`
}

test('names and numbers through the command line, on tables with rows, there and back', PATIENCE, async () => {
  await step('plain')
  await client.query(`
    insert into "user" (handle) values ('ann'), ('bob');
    insert into organization (slug) values ('red');
    insert into comment (tenant, body) values (1, 'a'), (2, 'b'), (1, 'c')`)

  await step('kept')
  expect(await names()).toBe('organization.slug[1] red held, user.handle[1] ann held, user.handle[2] bob held')
  expect(await numbers('number')).toBe('1:1, 2:1, 3:2; 1#2, 2#1')
  expect(await typeorm('migration:revert', 'kept')).toMatch(/has been reverted successfully/)
  await nothingLeft('plain')
  await typeorm('migration:run', 'kept')
  await nothingLeft('kept')
  await client.query(
    `update "user" set handle = 'anna' where id = 1; insert into comment (tenant, body) values (1, 'd')`,
  )

  await step('renamed')
  const held = 'user.nick[1] ann redirect, user.nick[1] anna held, user.nick[2] bob held'
  expect(await names()).toBe(`organization.slug[1] red held, ${held}`)
  expect(await numbers('position')).toBe('1:1, 2:1, 3:2, 4:3; 1#3, 2#1')

  await step('gone')
  expect(await names()).toBe('organization.slug[1] red held')
  await client.query(`insert into "user" (nick) values ('eve'); insert into comment (tenant, body) values (2, 'e')`)

  await typeorm('migration:revert', 'gone')
  await nothingLeft('renamed')
  expect(await numbers('position')).toBe('1:1, 2:1, 3:2, 4:3, 5:2; 1#3, 2#2')
  await typeorm('migration:revert', 'renamed')
  await nothingLeft('kept')
  expect(await names()).toMatch(/user\.handle\[1\] anna held, user\.handle\[2\] bob held, user\.handle\[3\] eve held$/)
  await typeorm('migration:revert', 'kept')
  await nothingLeft('plain')
  await typeorm('migration:revert', 'plain')
  expect(await lines(`select proname as line from pg_proc where pronamespace = 'public'::regnamespace`)).toBe('')
})

test('schema:sync makes the same', PATIENCE, async () => {
  await client.query('drop schema public cascade; create schema public')
  await typeorm('schema:sync', 'kept')
  await nothingLeft('kept')
})
