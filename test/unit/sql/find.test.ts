import { expect, test } from 'vitest'
import { findManyStatement, findOrCreateManyStatement } from '../../../src/sql/batch'
import type { ColumnTypes } from '../../../src/sql/types'
import type { RowShape, Statement } from '../../../src/sql/find'
import {
  createInChainStatement,
  findOrCreateStatement,
  findStandingStatement,
  findStatement,
  insertColumns,
  keyColumns,
} from '../../../src/sql/find'
import { takenStatement, type WantedText } from '../../../src/sql/taken'
import { type UpdateShape, upsertManyStatement, upsertStatement } from '../../../src/sql/upsert'
import { textTable } from '../../support/guarded-table'

const bare: RowShape = {
  table: textTable(),
  others: [],
  select: [],
  echoed: [],
  types: new Map(),
  spatial: new Map(),
  deferrable: false,
  distributed: undefined,
  updatesTogether: true,
  partitioned: false,
  crashesByPruning: false,
  numbered: false,
  otherNumbers: [],
  defaults: new Map(),
  fewScopes: [],
}

const plain: RowShape = { ...bare, others: ['title'], select: ['id', 'url', 'title'] }

const page: RowShape = { ...plain, echoed: ['url'] }

const scoped: RowShape = {
  ...bare,
  table: textTable({
    schema: 'My "Schema"',
    scope: ['site'],
    text: [
      { name: 'path', prefix: '' },
      { name: 'query', prefix: '?' },
    ],
  }),
  select: ['id', 'path', 'query'],
  echoed: ['path', 'query'],
}

const softDeleted: RowShape = { ...bare, table: textTable({ deleted: 'deletedAt' }), select: ['id', 'deletedAt'] }

const types: ColumnTypes = new Map([
  ['title', { type: 'character varying', declared: 'character varying(80)' }],
  ['site', { type: 'numeric', declared: 'numeric(10,2)' }],
])

const batchOf = (shape: RowShape): RowShape => ({ ...shape, types, defaults: new Map([['title', `'none'`]]) })

const wantedOf = ({ table }: RowShape, standing: boolean): WantedText => ({
  table,
  types,
  crashesByPruning: false,
  primary: ['id'],
  standing,
})
const update: UpdateShape = {
  update: ['title'],
  sql: new Map(),
  versions: ['version'],
  updateDates: ['changed'],
  hashes: [],
  skipUnchanged: false,
}
const skipping: UpdateShape = { ...update, skipUnchanged: true, only: { column: 'type', values: ["it's"] } }
const titled = (shape: RowShape): RowShape => ({ ...shape, others: ['title'], types })

const STATEMENTS: Readonly<Record<string, (shape: RowShape) => Statement<unknown>>> = {
  find: findStatement,
  'find what stands now': findStandingStatement,
  'find or create': findOrCreateStatement,
  'find or create in a scope as stored': (shape) => findOrCreateStatement({ ...shape, types, deferrable: true }),
  'find or create many': (shape) => findOrCreateManyStatement(batchOf(shape)),
  'find or create many in partitions': (shape) => findOrCreateManyStatement({ ...batchOf(shape), partitioned: true }),
  'find or create many in few partitions': (shape) =>
    findOrCreateManyStatement({ ...batchOf(shape), partitioned: true, fewScopes: shape.table.scope }),
  'taken by inserts': (shape) => takenStatement([wantedOf(shape, false), wantedOf(shape, false)]),
  'taken by updates': (shape) => takenStatement([wantedOf(shape, true)]),
  'find many': (shape) => findManyStatement({ ...batchOf(shape), others: [], defaults: new Map() }),
  'create in a chain': (shape) => createInChainStatement(shape, 'nothing'),
  upsert: (shape) => upsertStatement(titled(shape), update, true),
  'update, unless nothing changes': (shape) => upsertStatement(titled(shape), skipping, false),
  'upsert many': (shape) => upsertManyStatement(batchOf(titled(shape)), update),
  'upsert many, unless nothing changes': (shape) => upsertManyStatement(batchOf(titled(shape)), skipping),
  'create in a chain, or raise': (shape) => createInChainStatement(shape, 'raise'),
}

test('only the plan for partitions of any scope is kept', () => {
  const nameOf = (shape: Partial<RowShape>): boolean =>
    findOrCreateManyStatement({ ...batchOf(scoped), ...shape }).name !== ''
  const names = [{}, { partitioned: true }, { partitioned: true, fewScopes: ['site'] }].map(nameOf)
  expect(names).toStrictEqual([false, true, false])
})

test.each(['find', 'find or create', 'find or create many'])('%s looks for live rows alone', (name) => {
  expect(STATEMENTS[name]?.(softDeleted).sql).toContain('t."deletedAt" IS NULL')
})

test('equal names mean equal statements, and different statements have different names', () => {
  const every = Object.values(STATEMENTS).flatMap((statementOf) => [statementOf(page), statementOf(scoped)])
  const all = every.filter(({ name }) => name !== '')
  expect(new Set(all.map(({ name }) => name)).size).toBe(new Set(all.map(({ sql }) => sql)).size)
  expect(findStatement(page).name).toBe(findStatement({ ...page }).name)
  for (const { name } of all) expect(name).toMatch(/^unique_text_[0-9a-f]{16}$/)
})

test('parameters are scope, text, hash, and then the others', () => {
  expect(keyColumns(scoped.table)).toEqual(['site', 'path', 'query', 'urlHash'])
  expect(insertColumns(page)).toEqual(['url', 'urlHash', 'title'])
})

test('a row from the wire becomes a stored row, whatever the driver makes of a number or a boolean', () => {
  const { parse } = findOrCreateStatement(plain)
  expect(parse(['yes', '0', 7, 'a', null], [])).toEqual({
    index: 0,
    created: true,
    hashNumber: 0,
    columns: [7, 'a', null],
  })
  expect(parse([null, 2n, 7, 'a', null], [])).toEqual({
    index: 0,
    created: false,
    hashNumber: 2,
    columns: [7, 'a', null],
  })
})

test('texts that do not come over the wire are those that were sent', () => {
  const stored = { index: 0, created: false, hashNumber: 0 }
  expect(findStatement(scoped).parse([null, 0, 7], ['a', '/', null])).toEqual({ ...stored, columns: [7, '/', null] })
  const { parse } = findOrCreateStatement(scoped)
  expect(parse([null, 0, null, 7], ['a', '/', 'b'])).toEqual({ ...stored, columns: [7, '/', 'b'] })
  expect(parse([null, 0, '["/c",null]', 7], ['a', '/', 'b'])).toEqual({ ...stored, columns: [7, '/c', null] })
  const batch = findManyStatement(batchOf(scoped))
  const columns = [
    ['a', 'b'],
    ['/1', '/2'],
    [null, 'c'],
    ['hash', 'hash'],
  ]
  expect(batch.parse(['2', null, 0, 8], columns)).toEqual({ ...stored, index: 1, columns: [8, '/2', 'c'] })
})
