import { Column, type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { MigrationGenerateCommand } from 'typeorm/commands/MigrationGenerateCommand.js'
import { expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { Name, UniqueName } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { generate, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })

function entityOf(name: string, property = 'text', all = false): Function {
  class Made {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  }
  UniqueText({ digest: 'sha256' })(Made.prototype, property)
  if (all) {
    UniqueName({ namespace: name, nullable: true })(Made.prototype, 'handle')
    Column('integer')(Made.prototype, 'list')
    NumberWithin({ scope: ['list'], count: true })(Made.prototype, 'place')
  }
  Entity({ name })(Made)
  return Made
}

const open = async (entities: readonly Function[], dropSchema = false): Promise<DataSource> =>
  await db.dataSource([...entities], { synchronize: false, dropSchema })

class Pretty extends MigrationGenerateCommand {
  static all = (statements: readonly string[]): string[] => statements.map((one) => Pretty.prettifyQuery(one))
}

/** What stands in the catalog of ours. */
const functions = async ({ manager }: DataSource): Promise<{ name: string; body: string }[]> =>
  await manager.query(`select proname as name, prosrc as body from pg_proc
    where pronamespace = 'public'::regnamespace and prorettype = 'trigger'::regtype order by proname`)

/** Each of these names is of a table, and some are of words that bodies hold: none may change what it should not. */
const NAMES = [
  ['plain', ['user', 'page', 'entity_1', 'entity_10', 'post']],
  ['words of the bodies', ['text', 'id', 'table', 'plain', 'taken', 'name']],
  ['in turns', ['a', 'b', 'A', 'B', 't']],
  ['not ASCII', ['tür', 'tü', 'r', 'ünit', 'nit']],
  ['of other characters', ['$guard$', 'a -- b', 'a /* b', 'a b', 'b a', 'back\\slash', ' ']],
] as const

test.each(NAMES)('tables with names that are %s get the functions that each would get alone', async (_, names) => {
  const entities = names.map((name) => entityOf(name))
  const together = await open(entities, true)
  await migrate(together)
  expect((await generate(together)).up).toEqual([])
  const bodies = new Map((await functions(together)).map(({ name, body }) => [name, body]))
  await together.dropDatabase()
  for (const entity of entities) await migrate(await open([entity]))
  const alone = await functions(together)
  const code = (sql = ''): string => sql.replaceAll(/--[^\n]*/g, '').replaceAll(/\s+/g, ' ')
  const note = (sql = ''): string => sql.replaceAll(/\s+(?:--)?\s*/g, '')
  expect(alone).toHaveLength(bodies.size)
  for (const { name, body } of alone) {
    expect(code(bodies.get(name))).toBe(code(body))
    expect(note(bodies.get(name))).toBe(note(body))
  }
})

test('tables that differ in names get their functions from one migration, and each of them works', async () => {
  const entities = ['user', 'page', 'post'].map((name) => entityOf(name, 'text', true))
  const dataSource = await open([...entities, Name], true)
  const { down } = await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
  for (const entity of entities) {
    const first = await findOrCreate(dataSource.manager, entity, { text: 'a', handle: 'h', list: 1 })
    expect(first).toMatchObject({ created: true, entity: { place: 1 } })
    const insert = dataSource.manager.insert(entity, { text: 'b', handle: 'h', list: 1 })
    await expect(insert).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
  }
  await runAll(dataSource, down)
  expect(await functions(dataSource)).toEqual([])
})

test('written with --pretty it makes the same', async () => {
  const dataSource = await open(
    ['user', 'page', 'order'].map((name) => entityOf(name)),
    true,
  )
  const { up, down } = await generate(dataSource)
  await runAll(dataSource, Pretty.all(up))
  expect((await generate(dataSource)).up).toEqual([])
  await runAll(dataSource, Pretty.all(down))
  expect(await functions(dataSource)).toEqual([])
})

test('the way back of a new table drops it with its triggers, and then their functions', async () => {
  const [page, post] = [entityOf('page'), entityOf('post')]
  await migrate(await open([page], true))
  const both = await open([page, post])
  const { down } = await migrate(both)
  expect(down.filter((one) => one.includes('DROP TRIGGER'))).toEqual([])
  await runAll(both, down)
  const left = (await functions(both)).map(({ name }) => name)
  expect(left).toEqual(['unique_text_chain_v1', 'unique_text_page__text'])
  expect((await generate(await open([page]))).up).toEqual([])
})
