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
import { createPart, dropPart } from '../../../src/sql/library'

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

const PARTS = ['report', 'attach', 'texts'] as const
const CREATED = PARTS.map((part) => createPart(undefined, part))
const DROPPED = PARTS.toReversed().map((part) => dropPart(undefined, part))

/** What generates the library, and what follows it. */
const withoutLibrary = (statements: readonly string[]): string[] =>
  statements.filter((one) => ![...CREATED, ...DROPPED, createPart(undefined, 'numbers')].includes(one))

test('the first text comes with the library, which a revert drops', async () => {
  const { up, down } = await generate(await open(Page, true))
  expect(up.slice(0, 3)).toEqual(CREATED)
  expect(down.slice(-3)).toEqual(DROPPED)
  const [attached, ...more] = withoutLibrary(up).filter((one) => !one.startsWith('CREATE '))
  expect([attached, more]).toEqual([expect.stringMatching(/^SELECT "unique_text_attach_v1"/), []])
  expect(withoutLibrary(up).join('').length).toBeLessThanOrEqual(1_200)
})

test('of two branches that each create the library, the second generates again and then comes without it', async () => {
  const Other = entity('Other', { name: text() })
  const of = async (...entities: readonly Function[]): Promise<DataSource> =>
    await db.dataSource([...entities], { synchronize: false })
  const first = await generate(await open(Page, true))
  const second = await generate(await of(Other))
  await runAll(await open(Page), first.up)
  await expect(runAll(await of(Page, Other), second.up)).rejects.toMatchObject({ code: '42723' })
  const again = await migrate(await of(Page, Other))
  expect(again.up).toEqual(withoutLibrary(second.up))
  expect(again.down).toEqual(withoutLibrary(second.down))
  expect((await generate(await of(Page, Other))).up).toEqual([])
})

test('a migration without the library names the function that is missing', async () => {
  const { up } = await generate(await open(Page, true))
  const lost = runAll(await open(Page), withoutLibrary(up))
  await expect(lost).rejects.toMatchObject({ code: '42883', message: expect.stringContaining('unique_text_attach_v1') })
})

test('a second text comes without it', async () => {
  const { up, down } = await change(Page, PageOfTwo)
  expect(up).toEqual(withoutLibrary(up))
  expect(up.filter((one) => one.includes('unique_text_'))).toHaveLength(1)
  expect(down.filter((one) => one.includes('unique_text_'))).toHaveLength(1)
})

test.each([
  ['a changed maxChainLength', PageOfSix],
  ['a changed option of the text', ImmutablePage],
])('%s is one statement that attaches the text again', async (_, after) => {
  const { up, down } = await change(Page, after)
  for (const statements of [up, down]) {
    const called = Array.from(statements.join('\n').matchAll(/^SELECT "unique_text_(\w+)_v1"/gm), ([, name]) => name)
    expect(called).toEqual(['attach'])
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

test('fourteen entities and the table of names make their functions by the library alone', async () => {
  const dataSource = await db.dataSource([...FOURTEEN, Name], { synchronize: false, dropSchema: true })
  const up = withoutLibrary((await migrate(dataSource)).up).filter((one) => one !== createPart(undefined, 'names'))
  const all = up.join(';\n')
  expect(all).toContain('unique_text_attach_name_v1')
  expect(all).not.toMatch(/CREATE FUNCTION|SECURITY DEFINER/)
  expect((await generate(dataSource)).up).toEqual([])
})
