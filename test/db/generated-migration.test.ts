import { type DataSource, Entity, PrimaryGeneratedColumn, type QueryRunner } from 'typeorm'
import { expect, test } from 'vitest'
import { UniqueText } from '../../src'
import { Url } from '../../src/url'
import { CreateUrls1795255200000 } from '../../migrations/1795255200000-CreateUrls'
import { useDatabase } from '../support/database'
import { generate, type Generated, migrate } from '../support/generated'

const db = useDatabase()

@Entity({ name: 'page' })
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ maxChainLength: 5 }) url!: string
}

@Entity({ name: 'page' })
class PageOfSix {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ maxChainLength: 6 }) url!: string
}

@Entity({ name: 'page' })
class ImmutablePage {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ maxChainLength: 5, immutable: true }) url!: string
}

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
  expect(committed).toEqual({ up, down })
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
  const bodies = lines.join('\n').match(/(?<=AS \$guard\$).+?(?=\$guard\$)/gs) ?? []
  expect(bodies).toHaveLength(2)
  // One predicate a line and the reasons beside them, in what is made once.
  expect(lines.length - linesOf(bodies).length).toBeLessThanOrEqual(90)
  expect(lines.length).toBeLessThanOrEqual(280)
  expect(linesOf(ofGuard(down)).length).toBeLessThanOrEqual(8)
})

test('a changed maxChainLength emits only the triggers that have it', async () => {
  const { up } = await change(Page, PageOfSix)
  expect(up.filter((one) => /^CREATE (?:OR REPLACE )?FUNCTION/.test(one))).toEqual([])
  expect(linesOf(up).length).toBeLessThanOrEqual(60)
})

test('a changed option of place leaves settle and the triggers alone', async () => {
  const { up, down } = await change(Page, ImmutablePage)
  for (const statements of [up, down]) {
    const kinds = statements.map((one) => one.replace(/".*$/s, '').replace(/\$.*$/s, '').trim())
    expect(kinds).toEqual(['CREATE OR REPLACE FUNCTION'])
    expect(statements[0]).toContain('page.url_place')
  }
})
