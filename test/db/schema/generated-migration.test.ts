import { Column, type DataSource, DeleteDateColumn, Entity, PrimaryGeneratedColumn, type QueryRunner } from 'typeorm'
import { MigrationGenerateCommand } from 'typeorm/commands/MigrationGenerateCommand.js'
import { expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { Name, UniqueName } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
import { Url } from '../../../src/url'
import { CreateUrls1795255200000 } from '../../../migrations/1795255200000-CreateUrls'
import { useDatabase } from '../../support/database'
import { column, entity, plain, text } from '../../support/entity'
import { generate, type Generated, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })

const Page = entity('Page', { url: text({ maxChainLength: 5 }) })

const PageOfSix = entity('PageOfSix', { url: text({ maxChainLength: 6 }) }, { name: 'page' })

const PageOfTwo = entity('Page', { url: text({ maxChainLength: 5 }), other: text({ nullable: true }) })

const ImmutablePage = entity('ImmutablePage', { url: text({ maxChainLength: 5, immutable: true }) }, { name: 'page' })

/** On an empty database, unless another entity's table stands there. */
const open = async (entity: Function, dropSchema = false): Promise<DataSource> =>
  await db.dataSource([entity], { synchronize: false, dropSchema })

const linesOf = (statements: readonly string[]): string[] => statements.flatMap((one) => one.split('\n'))

/** What TypeORM writes on one line, as it always does, is not ours to break. */
const ofGuard = (statements: readonly string[]): string[] =>
  statements.filter((one) => /FUNCTION|TRIGGER|^DO/.test(one) && !/^CREATE (?:TABLE|UNIQUE)/.test(one))

async function change(from: Function, to: Function): Promise<Generated> {
  await migrate(await open(from, true))
  return await migrate(await open(to))
}

test('the committed migration is what is generated', async () => {
  const { up, down } = await generate(await open(Url, true))
  const committed = { up: [] as string[], down: [] as string[] }
  const recorder = (list: string[]): QueryRunner =>
    Object.assign(Object.create(null) as QueryRunner, { query: async (sql: string) => void list.push(sql) })
  const migration = new CreateUrls1795255200000()
  await migration.up(recorder(committed.up))
  await migration.down(recorder(committed.down))
  // TypeORM 0.3 sets two spaces before the columns of an index.
  const evenly = (list: readonly string[]): string[] => list.map((one) => one.replaceAll('  ("', ' ("'))
  expect({ up: evenly(committed.up), down: evenly(committed.down) }).toEqual({ up: evenly(up), down: evenly(down) })
})

test.each([
  ['Url', Url],
  ['a simple text', Page],
])('the guard of %s comes in lines that can be read', async (_, entity) => {
  const { up, down } = await generate(await open(entity, true))
  expect(linesOf(ofGuard([...up, ...down])).filter((line) => line.length > 120)).toEqual([])
})

test('the guard of a simple text comes in few lines', async () => {
  const { up, down } = await generate(await open(Page, true))
  const lines = linesOf(ofGuard(up))
  const bodies = lines.join('\n').match(/(?<=RETURNS trigger LANGUAGE plpgsql AS \$guard\$).+?(?=\$guard\$)/gs) ?? []
  // That of the text, and the one that all texts of a schema share.
  expect(bodies).toHaveLength(2)
  // One predicate a line and the reasons beside them, in what is made once.
  expect(lines.length - linesOf(bodies).length).toBeLessThanOrEqual(110)
  expect(lines.length).toBeLessThanOrEqual(400)
  expect(linesOf(ofGuard(down)).length).toBeLessThanOrEqual(24)
})

test('the guard of a second text comes in fewer lines, for the kernel stands', async () => {
  const { up } = await change(Page, PageOfTwo)
  expect(up.join('\n')).not.toMatch(/CREATE (?:OR REPLACE )?FUNCTION "unique_text_chain_v1"/)
  expect(linesOf(up.filter((one) => /FUNCTION|TRIGGER/.test(one))).length).toBeLessThanOrEqual(104)
})

test('a changed maxChainLength emits only the trigger that has it, and the function that tells of it', async () => {
  const { up } = await change(Page, PageOfSix)
  const made = up.flatMap((one) =>
    Array.from(one.matchAll(/CREATE (?:OR REPLACE )?(?:FUNCTION|TRIGGER) "(\w+)"/g), ([, name]) => name),
  )
  const suffixes = ['', '_rest']
  expect(made).toEqual(suffixes.map((suffix) => `unique_text_page__url${suffix}`))
  expect(linesOf(up).length).toBeLessThanOrEqual(90)
})

test('a changed option of the text leaves the kernel and the triggers alone', async () => {
  const { up, down } = await change(Page, ImmutablePage)
  for (const statements of [up, down]) {
    const kinds = statements.map((one) => one.replace(/".*$/s, '').replace(/\$.*$/s, '').trim())
    expect(kinds).toEqual(['CREATE OR REPLACE FUNCTION'])
    expect(statements[0]).toContain('"unique_text_page__url"')
  }
})

const OddPage = entity(
  'OddPage',
  {
    path: column('text', { name: 'a  path', nullable: true }),
    query: plain(),
    site: column('integer'),
    url: text({ immutable: true, scope: ['site'] }),
  },
  { name: 'odd  page -- of it' },
)
UniqueText({
  as: 'odd  place',
  columns: ['path', { property: 'query', prefix: '?' }],
  scope: ['site'],
  digest: 'sha256',
})(OddPage)

const PageBySha = entity('PageBySha', { url: text({ maxChainLength: 5, digest: 'sha256' }) }, { name: 'page' })

const PageWithoutText = entity('PageWithoutText', { url: column('text') }, { name: 'page' })

class Pretty extends MigrationGenerateCommand {
  static all = (statements: readonly string[]): string[] => statements.map((one) => Pretty.prettifyQuery(one))
}

async function migratePrettily(dataSource: DataSource): Promise<string[]> {
  const { up, down } = await generate(dataSource)
  await runAll(dataSource, Pretty.all(up))
  return Pretty.all(down)
}

test.each([
  ['Url', Url],
  ['a simple text', Page],
  ['odd names, a scope and NULLs', OddPage],
])('a migration of %s written with --pretty leaves nothing to generate', async (_, entity) => {
  const dataSource = await open(entity, true)
  await migratePrettily(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
})

test.each([
  ['a changed chain length', PageOfSix],
  ['an immutable text', ImmutablePage],
  ['another digest', PageBySha],
  ['a text that is not unique any more', PageWithoutText],
])('%s written with --pretty is found, and so is its way back', async (_, entity) => {
  const before = await open(Page, true)
  await migratePrettily(before)
  await before.query(`INSERT INTO page (url) VALUES ('a'), ('b')`)
  const after = await open(entity)
  const down = await migratePrettily(after)
  expect((await generate(after)).up).toEqual([])
  await runAll(before, down)
  expect((await generate(before)).up).toEqual([])
})

/** An entity whose one column of ours is made so. */
function entityOf(name: string, decorate: PropertyDecorator): Function {
  class Made {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @Column('integer') tenantId!: number
    @DeleteDateColumn() deletedAt!: Date | null
  }
  decorate(Made.prototype, 'own')
  Entity({ name })(Made)
  return Made
}

/** Ten with a text, two with a name, two with a number. */
const FOURTEEN: readonly Function[] = [
  ...['one', 'two', 'three', 'four', 'five', 'six'].map((name) => entityOf(name, UniqueText())),
  entityOf('scoped', UniqueText({ scope: ['tenantId'] })),
  entityOf('optional', UniqueText({ nullable: true })),
  entityOf('fixed', UniqueText({ immutable: true })),
  entityOf('soft', UniqueText({ ignoreDeleted: true })),
  entityOf('user', UniqueName({ namespace: 'handle' })),
  entityOf('team', UniqueName({ namespace: 'handle', former: 'redirect' })),
  entityOf('invoice', NumberWithin({ scope: ['tenantId'] })),
  entityOf('ticket', NumberWithin({ scope: ['tenantId'], count: true })),
]

test('fourteen entities and the table of names have their functions made and secured by one statement', async () => {
  const dataSource = await db.dataSource([...FOURTEEN, Name], { synchronize: false, dropSchema: true })
  const { up } = await migrate(dataSource)
  const all = up.join(';\n')
  const making = up.flatMap((one, at) =>
    one.includes('CREATE FUNCTION') || one.includes('SECURITY DEFINER') ? at : [],
  )
  expect(making).toHaveLength(1)
  expect(all.match(/SECURITY DEFINER/g)).toHaveLength(1)
  expect(up.findIndex((one) => one.startsWith('CREATE TRIGGER'))).toBeGreaterThan(making[0] ?? Infinity)
  expect((await generate(dataSource)).up).toEqual([])
})
