import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { runInThisContext } from 'node:vm'
import * as typeorm from 'typeorm'
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript'
import { beforeEach, expect, test } from 'vitest'
import { NumberWithin } from '../../../src/numbers'
import { readLines } from '../../package/readme'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'

interface Recipe {
  readonly Order: new () => { id: number; tenant: number; state: string }
  readonly Invoice: new () => { id: number; tenant: number; number: number }
  readonly confirm: (id: number, tenant: number) => Promise<{ number: number } | null>
}

const page = await readFile(path.resolve(import.meta.dirname, '../../../docs/numbers.md'), 'utf8')
const { classes = '', body } = readLines(page).find(({ name }) => name === 'confirmed') ?? {}
const [program = ''] = body?.split('const [a, b]') ?? []

/** Runs the classes and the function of the page. */
function recipe(manager: () => typeorm.EntityManager): Recipe {
  const names = { ...typeorm, NumberWithin, transaction: (...given: Given) => manager().transaction(...given) }
  const source = `(({ ${NAMES.join(', ')}, NumberWithin, transaction }) => {
    const manager = { transaction }\n${classes}\n${program}\nreturn { Order, Invoice, confirm } })`
  const { outputText } = transpileModule(source, {
    compilerOptions: { experimentalDecorators: true, module: ModuleKind.None, target: ScriptTarget.ES2022 },
  })
  return (runInThisContext(outputText) as (given: object) => Recipe)(names)
}

type Given = [work: (manager: typeorm.EntityManager) => Promise<unknown>]

/** What the page imports from TypeORM. */
const NAMES = ['Column', 'Entity', 'JoinColumn', 'OneToOne', 'PrimaryColumn', 'PrimaryGeneratedColumn']

const db = useDatabase()
const { Order, Invoice, confirm } = recipe(() => dataSource.manager)
const dataSource = db.useDataSource([Order, Invoice])

const sessions = { other: db.useClient(), observer: db.useClient() }

/** `reuse: false` outlives TRUNCATE, so each test has a tenant of its own. */
let tenant = 0

beforeEach(async () => {
  tenant += 1
  await dataSource.manager.insert(
    Order,
    Array.from({ length: 4 }, (_, index) => ({ id: index + 1, tenant })),
  )
})

const stored = async (): Promise<string[]> =>
  (await dataSource.manager.find(Invoice, { order: { number: 'ASC' } })).map(({ id, number }) => `${id}: ${number}`)

const CONFIRMED = `UPDATE "order" SET state = 'confirmed' WHERE id = 1;
  INSERT INTO invoice (id, tenant) SELECT id, tenant FROM "order" WHERE id = 1`
const CANCELLED = `UPDATE "order" SET state = 'cancelled' WHERE id = 1`

test.each([
  { name: 'the other confirms first', sql: CONFIRMED, end: 'COMMIT', number: 1, all: ['1: 1', '2: 2'] },
  { name: 'the other rolls back', sql: CONFIRMED, end: 'ROLLBACK', number: 1, all: ['1: 1', '2: 2'] },
  { name: 'the other cancels', sql: CANCELLED, end: 'COMMIT', number: undefined, all: ['2: 1'] },
  { name: 'the other does not cancel after all', sql: CANCELLED, end: 'ROLLBACK', number: 1, all: ['1: 1', '2: 2'] },
] as const)('a confirmation waits for another session: $name', async ({ sql, end, number, all }) => {
  expect((await meet(sessions, sql, () => confirm(1, tenant), end))?.number).toBe(number)
  await confirm(2, tenant)
  expect(await stored()).toEqual(all)
})

test('32 confirmations at once give each order one number, without a gap', async () => {
  const calls = Array.from({ length: 32 }, (_, index) => confirm((index % 4) + 1, tenant))
  const numbers = (await Promise.all(calls)).map((invoice) => invoice?.number)
  for (const [index, number] of numbers.entries()) expect(number).toBe(numbers[index % 4])
  expect(new Set(numbers)).toEqual(new Set([1, 2, 3, 4]))
})

test('a cancelled draft has no number, and a number outlives a later cancellation', async () => {
  await confirm(1, tenant)
  await dataSource.manager.update(Order, { id: 1 }, { state: 'cancelled' })
  await dataSource.manager.update(Order, { id: 2 }, { state: 'cancelled' })
  expect(await confirm(2, tenant)).toBeNull()
  expect(await confirm(1, tenant)).toMatchObject({ number: 1 })
  expect(await confirm(3, tenant)).toMatchObject({ number: 2 })
  expect(await stored()).toEqual(['1: 1', '3: 2'])
})

test('the recipe has at most 25 lines', () => {
  expect(`${classes}${program}`.trim().split('\n').length).toBeLessThanOrEqual(25)
})
