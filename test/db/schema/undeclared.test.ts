import { afterAll, beforeAll, expect, test } from 'vitest'
import { type CommandLine, openCommandLine } from '../../support/command-line'
import { useDatabase } from '../../support/database'

// Other files of this process have imported the entries for names and numbers, so each command is a process of its own.
const PATIENCE = { timeout: 300_000 }

const db = useDatabase()
const client = db.useClient()

const NAMED = `schema(require(src + '/names').uniqueNameSchema(user, { handle: { namespace: 'handle' } }))`
const NUMBERED = `schema(require(src + '/numbers').numberWithinSchema(
  { ...comment, columns: { id, body: text } },
  { number: { scope: [] } },
))`

/** The entities of an application, and what else it imports, in the course of time. */
const STAGES = {
  declared: [`[require(src + '/names').Name, ${NAMED}, ${NUMBERED}, page]`],
  gone: ['[schema({ ...user, columns: { id, handle: text } }), schema(comment), page]'],
  'gone-with-names': ['[schema({ ...user, columns: { id, handle: text } }), schema(comment), page]', '/names'],
  'gone-with-both': [
    '[schema({ ...user, columns: { id, handle: text } }), schema(comment), page]',
    '/names',
    '/numbers',
  ],
} as const

const dataSource = (entities: string, imports: readonly string[]): string => `
const { DataSource, EntitySchema } = require('typeorm')
const { uniqueTextSchema, withUniqueText } = require(src)
${imports.map((entry) => `require(src + '${entry}')`).join('\n')}

const schema = (options) => new EntitySchema(options)
const [id, text] = [{ type: 'integer', primary: true, generated: 'identity' }, { type: 'text' }]
const user = { name: 'User', tableName: 'user', columns: { id } }
const comment = { name: 'Comment', tableName: 'comment', columns: { id, body: text } }
const page = schema(uniqueTextSchema({ name: 'Page', tableName: 'page', columns: { id } }, { url: {} }))

exports.dataSource = withUniqueText(new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: ${entities},
  migrations: [process.env.FOLDER + '/migrations/*.js'],
}))
`

let commands: CommandLine

beforeAll(async () => {
  commands = await openCommandLine(db.url)
  for (const [stage, [entities, ...imports]] of Object.entries(STAGES)) {
    await commands.write(`${stage}.js`, dataSource(entities, imports))
  }
  await typeorm('schema:sync', 'declared')
  await client.query(`insert into "user" (handle) values ('ann'); insert into comment (body) values ('one'), ('two')`)
}, PATIENCE.timeout)
afterAll(() => commands.remove())

const run = async (command: string, stage: keyof typeof STAGES, ...args: readonly string[]) =>
  await commands.typeorm(command, '-d', `${commands.folder}/${stage}.js`, ...args)

async function typeorm(...args: Parameters<typeof run>): Promise<string> {
  const { code, output } = await run(...args)
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}:\n${output}`)
  return output
}

const MIGRATION = 'migrations/drop'

/** All triggers, names and numbers that are stored. */
async function stored(): Promise<unknown> {
  const { rows } = await client.query<Record<string, unknown>>(
    `select (select count(*)::int from pg_trigger where not tgisinternal and tgrelid = '"user"'::regclass) as names,
       (select count(*)::int from pg_trigger where not tgisinternal and tgrelid = 'comment'::regclass) as numbers,
       (select json_agg(text) from names) as held,
       (select json_agg(attname) from pg_attribute where attrelid = 'comment'::regclass and attname = 'number') as columns`,
  )
  return rows[0]
}

const DECLARED = { names: 5, numbers: 3, held: ['ann'], columns: ['number'] }

test.each([
  ['schema:log', 'gone', 'Table "user" still has triggers for names'],
  ['schema:sync', 'gone', `import 'typeorm-unique-text/names' where the DataSource is created`],
  ['migration:generate', 'gone', 'generate the migration, and then remove the import'],
  ['migration:generate', 'gone-with-names', 'Table "comment" still has triggers for numbers'],
  ['schema:sync', 'gone-with-names', `import 'typeorm-unique-text/numbers' where the DataSource is created`],
] as const)(
  '%s of an application without the declaration and the import changes nothing and says what to import (%s)',
  async (command, stage, words) => {
    const file = command === 'migration:generate' ? [`${commands.folder}/${MIGRATION}`] : []
    const { code, output } = await run(command, stage, ...file)
    expect({ code, output }).toEqual({ code: 1, output: expect.stringContaining(words) as string })
    expect(await stored()).toEqual(DECLARED)
  },
  PATIENCE.timeout,
)

test(
  'a migration that is generated with the imports removes both, and is reverted and run without them',
  async () => {
    await typeorm('migration:generate', 'gone-with-both', `${commands.folder}/${MIGRATION}`, '--outputJs')
    await typeorm('migration:run', 'gone')
    expect(await stored()).toEqual({ names: 0, numbers: 0, held: null, columns: null })
    expect(await typeorm('schema:log', 'gone')).toContain('Your schema is up to date')
    await typeorm('migration:revert', 'gone')
    expect(await stored()).toEqual(DECLARED)
  },
  PATIENCE.timeout,
)

test(
  'schema:drop needs no import',
  async () => {
    await typeorm('schema:drop', 'gone')
    const { rows } = await client.query(
      `select relname from pg_class where relnamespace = 'public'::regnamespace union all
       select proname from pg_proc where pronamespace = 'public'::regnamespace`,
    )
    expect(rows).toEqual([])
  },
  PATIENCE.timeout,
)
