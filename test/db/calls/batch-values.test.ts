import * as fc from 'fast-check'
import { Column, DataSource, Entity, type ObjectLiteral, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, TextRejectedError, UniqueText, upsertByText } from '../../../src'
import { gatePart, gateRuns } from '../../support/gate-part'
import { ODD_VALUES, TYPED_COLUMNS, type TypedColumn } from '../../support/column-types'
import { useDatabase } from '../../support/database'
import { runOnce } from '../../support/databases'

// A column without a time zone holds local time: in UTC a shift would not be seen.
process.env['TZ'] = 'America/St_Johns'

const db = useDatabase()

// A hundred types, some ten values each, three ways.
const SLOW_MILLISECONDS = 240_000

class Everything {
  id!: number
  text!: string;
  [column: string]: unknown
}

let dataSource: DataSource
let columns: readonly TypedColumn[]

beforeAll(async () => {
  const rows = await runOnce(db.url, 'select name from pg_available_extensions')
  const available = new Set(rows.map(({ name }) => name))
  columns = TYPED_COLUMNS.filter(({ extension }) => extension === undefined || available.has(extension))
  PrimaryGeneratedColumn('identity')(Everything.prototype, 'id')
  UniqueText()(Everything.prototype, 'text')
  for (const [index, { options }] of columns.entries()) Column(options)(Everything.prototype, `c${index}`)
  // Left out by most rows of a batch, and then the default counts, in the same way as alone.
  Column({ type: 'integer', default: 7 })(Everything.prototype, 'd0')
  Column({ type: 'varchar', length: 3, default: 'abc' })(Everything.prototype, 'd1')
  Column({ type: 'jsonb', default: () => `'{"by": "default"}'`, nullable: true })(Everything.prototype, 'd2')
  Entity()(Everything)
  dataSource = await db.dataSource([Everything])
})

/** What became of one row: its columns as text and its entity, or the kind of error. */
type Outcome = { readonly stored: unknown; readonly entity: unknown } | { readonly refused: string }

/** A row's entity, or why there is none. */
type Answer = { readonly entity: object } | { readonly error: unknown }

const kindOfError = (error: unknown): string => {
  // U+0000, which our calls refuse before the server does.
  if (error instanceof TextRejectedError) return '22021'
  const { code } = (error as { driverError?: { code?: string } }).driverError ?? {}
  return code ?? (error as Error).constructor.name
}

const answerOf = (promise: Promise<object>): Promise<Answer> =>
  promise.then(
    (entity) => ({ entity }),
    (error: unknown) => ({ error }),
  )

/** @param answers in the order of the rows, whose texts are the way's name, then their index */
async function outcomes(way: string, answers: readonly Answer[]): Promise<Outcome[]> {
  const names = [...columns.map((_, index) => `c${index}`), 'd0', 'd1', 'd2']
  const list = names.map((name) => `"${name}"::text`).join(', ')
  const rows = (await dataSource.query(`select text, array[${list}] as stored from everything`)) as {
    text: string
    stored: unknown
  }[]
  const stored = new Map(rows.map((row) => [row.text, row.stored]))
  return answers.map((answer, index) => {
    if ('error' in answer) return { refused: kindOfError(answer.error) }
    const entity = { ...answer.entity, id: undefined, text: undefined }
    return { stored: stored.get(`${way} ${index}`), entity }
  })
}

async function saveAll(rows: readonly ObjectLiteral[]): Promise<Answer[]> {
  const repository = dataSource.getRepository(Everything)
  const answers: Answer[] = []
  for (const [index, values] of rows.entries()) {
    answers.push(await answerOf(repository.save({ ...values, text: `save ${index}` })))
  }
  // What save gives back is what it was given; what it has stored is seen by finding it.
  const found = new Map((await repository.find()).map((entity) => [entity.text, entity]))
  return answers.map((answer, index) => ('error' in answer ? answer : { entity: found.get(`save ${index}`) ?? {} }))
}

async function findOrCreateAll(rows: readonly ObjectLiteral[]): Promise<Answer[]> {
  const { manager } = dataSource
  const answers: Answer[] = []
  for (const [index, values] of rows.entries()) {
    const created = findOrCreate(manager, Everything, { ...values, text: `single ${index}` })
    answers.push(await answerOf(created.then(({ entity }) => entity)))
  }
  return answers
}

/** The rows are there already, without values: each way updates its own. */
async function createAll(rows: readonly ObjectLiteral[]): Promise<void> {
  const { manager } = dataSource
  const ways = ['upsert', 'upserts', 'unless']
  const texts = ways.flatMap((way) => rows.map((_, index) => ({ text: `${way} ${index}` })))
  await findOrCreateMany(manager, Everything, texts)
}

async function upsertSingly(rows: readonly ObjectLiteral[], options: object, way: string): Promise<Answer[]> {
  const answers: Answer[] = []
  for (const [index, values] of rows.entries()) {
    const upserted = upsertByText(dataSource.manager, Everything, { ...values, text: `${way} ${index}` }, options)
    answers.push(await answerOf(upserted.then(({ entity }) => entity)))
  }
  return answers
}

async function upsertMany(rows: readonly ObjectLiteral[], options: object, way: string): Promise<Answer[]> {
  const inputs = rows.map((values, index) => ({ ...values, text: `${way} ${index}` }))
  return await upsertByText(dataSource.manager, Everything, inputs, options)
}

async function expectAlike(rows: readonly ObjectLiteral[]): Promise<void> {
  await dataSource.query('truncate everything')
  const inputs = rows.map((values, index) => ({ ...values, text: `batch ${index}` }))
  const batch = await outcomes('batch', await findOrCreateMany(dataSource.manager, Everything, inputs))
  const single = await outcomes('single', await findOrCreateAll(rows))
  const saved = await outcomes('save', await saveAll(rows))
  expect(single, 'findOrCreate').toEqual(saved)
  expect(batch, 'findOrCreateMany').toEqual(saved)
  await createAll(rows)
  expect(await outcomes('upsert', await upsertSingly(rows, {}, 'upsert')), 'upsertByText').toEqual(saved)
  expect(await outcomes('upserts', await upsertMany(rows, {}, 'upserts')), 'upsertByText, many').toEqual(saved)
  const unless = { skipUpdateIfNoValuesChanged: true }
  expect(await outcomes('unless', await upsertMany(rows, unless, 'unless')), 'if changed').toEqual(saved)
  expect(await outcomes('unless', await upsertSingly(rows, unless, 'unless')), 'if changed again').toEqual(saved)
}

/** The type, for a failure. */
const of = async ({ options }: TypedColumn, check: Promise<void>): Promise<void> => {
  await check.catch((error: unknown) => {
    throw new Error(`${JSON.stringify(options)}: ${String(error)}`, { cause: error })
  })
}

/** A row that brings a few of the columns, with a value that is right for each, or odd now and then. */
const anyRow = (): fc.Arbitrary<ObjectLiteral> => {
  const property = fc.nat(columns.length - 1).chain((index) => {
    const right = { weight: 12, arbitrary: fc.constantFrom(...(columns[index]?.values ?? [])) }
    const odd = { weight: 1, arbitrary: fc.constantFrom(...ODD_VALUES) }
    return fc.tuple(fc.constant(`c${index}`), fc.oneof(right, odd))
  })
  const withDefault = fc.constantFrom(['d0', 8], ['d1', 'x'], ['d1', 'too long'], ['d2', null], ['d2', { by: 'us' }])
  return fc
    .tuple(fc.array(property, { maxLength: 5 }), fc.array(withDefault, { maxLength: 2 }))
    .map((entries) => Object.fromEntries(entries.flat()))
}

test('every type that TypeORM supports on Postgres is among the columns', () => {
  const { supportedDataTypes } = dataSource.driver
  const covered = new Set(TYPED_COLUMNS.map(({ options }) => options.type))
  expect(supportedDataTypes.filter((type) => !covered.has(type))).toEqual([])
})

describe('rows by save, findOrCreate, findOrCreateMany, and by upsertByText once they are there,', () => {
  test('are equal for each value of each type', { timeout: SLOW_MILLISECONDS }, async () => {
    const most = Math.max(...columns.map(({ values }) => values.length))
    const rows = Array.from({ length: most + 1 }, (_, nth) =>
      Object.fromEntries(
        columns.map(({ values }, index) => [`c${index}`, [...values, null][nth % (values.length + 1)]]),
      ),
    )
    await expectAlike(rows)
  })

  test('are equal for odd values, which are refused alike', { timeout: SLOW_MILLISECONDS }, async () => {
    for (const [index, column] of gatePart(5, [...columns.entries()])) {
      // Some of them for each type, and each of them for some types.
      const some = ODD_VALUES.filter((_, nth) => (nth + index) % 5 === 0)
      await of(column, expectAlike(some.map((value) => ({ [`c${index}`]: value }))))
    }
  })

  test('are equal for any rows together in one batch', { timeout: SLOW_MILLISECONDS }, async () => {
    const rows = fc.array(fc.constant(undefined).chain(anyRow), { minLength: 2, maxLength: 8 })
    await fc.assert(fc.asyncProperty(rows, expectAlike), { numRuns: gateRuns(40) })
  })
})
