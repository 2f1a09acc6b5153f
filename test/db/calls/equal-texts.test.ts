import type { ObjectLiteral } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreateMany, upsertByText } from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
import { useDatabase } from '../../support/database'
import { column, entity, plain, text, version } from '../../support/entity'

const Scoped = entity('Scoped', {
  tenant: column('uuid'),
  number: column('bigint'),
  text: text({ scope: ['tenant', 'number'] }),
  n: column('integer'),
})
const Item = entity('Item', { text: text(), n: plain(), m: plain(), version: version() })
type Item = InstanceType<typeof Item>

const db = useDatabase()
const dataSource = db.useDataSource([Item, Scoped])
const { manager } = dataSource

beforeAll(async () => {
  await dataSource.query(`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
    create trigger refuse before insert or update on item for each row when (new.n = 'bad') execute function refuse()`)
})

/** What became of each: 'new', 'found' or 'error'. */
const told = (results: readonly object[]): string[] =>
  results.map((result) => ('error' in result ? 'error' : (result as { created: boolean }).created ? 'new' : 'found'))
const stored = (): Promise<ObjectLiteral[]> => dataSource.query('select text, n, m from item order by text')

const BAD_FIRST = [{ text: 'a', n: 'bad' }, { text: 'b' }, { text: 'a', n: 'good' }, { text: 'a', n: 'later' }]

async function streamed(inputs: readonly object[], options = {}): Promise<object[]> {
  const results: object[] = []
  for await (const result of findOrCreateStream(dataSource, Item, inputs, options)) results.push(result)
  return results
}

const CALLS: Readonly<Record<string, (inputs: readonly { text: string }[]) => Promise<object[]>>> = {
  findOrCreateMany: (inputs) => findOrCreateMany(manager, Item, inputs),
  'findOrCreateMany in a transaction': (inputs) =>
    dataSource.transaction((manager) => findOrCreateMany(manager, Item, inputs)),
  'findOrCreateMany with create': (inputs) =>
    findOrCreateMany(
      manager,
      Item,
      inputs.map(({ text }) => ({ text })),
      { create: (_: object, index: number) => ({ ...inputs[index] }) },
    ),
  stream: streamed,
  'stream in windows of one': (inputs) => streamed(inputs, { window: 1 }),
}

const REFUSED_OR_FOUND: unknown = expect.stringMatching(/^(error|found)$/)

describe.each(Object.keys(CALLS))('%s', (name) => {
  const call = CALLS[name] ?? streamed
  test('a refused first input of a text does not decide for the others', async () => {
    const results = told(await call(BAD_FIRST))
    expect(results.toSorted()).toEqual(['error', 'found', 'new', 'new'])
    expect(results[0]).toBe('error')
    expect((await stored()).map(({ text, n }) => [text, n === null || ['good', 'later'].includes(n)])).toEqual([
      ['a', true],
      ['b', true],
    ])
  })
  test('several refused ones neither', async () => {
    const inputs = [
      ...BAD_FIRST.slice(0, 2),
      { text: 'a', n: 'bad', m: 'other' },
      { text: 'a', n: 'bad' },
      { text: 'a', m: 'x' },
    ]
    const results = told(await call(inputs))
    // Of windows that are at the server together, any may be first.
    expect(results).toEqual(['error', 'new', REFUSED_OR_FOUND, REFUSED_OR_FOUND, 'new'])
    expect(await stored()).toMatchObject([{ text: 'a', n: null, m: 'x' }, { text: 'b' }])
  })
  test('a refused input behind one that is stored finds the row', async () => {
    const inputs = ['bad', 'good', 'bad', 'bad'].map((n) => ({ text: 'a', n }))
    const later = name.includes('windows') ? REFUSED_OR_FOUND : 'found'
    expect(told(await call(inputs))).toEqual(['error', 'new', later, later])
  })
  test('a refused later input that finds the row is not refused', async () => {
    expect(told(await call([{ text: 'a' }, { text: 'a', n: 'bad' }] as never))).toEqual(['new', 'found'])
  })
})

test('over thousands of rows in several windows each bad input fails alone', async () => {
  const inputs = Array.from({ length: 7_000 }, (_, index) => ({
    text: `${index % 1_500}`,
    n: index < 10 ? 'bad' : 'ok',
  }))
  const results = await streamed(inputs)
  expect(told(results)).toEqual(inputs.map((_, index) => (index < 10 ? 'error' : index < 1_510 ? 'new' : 'found')))
})

test('progress counts every input once', async () => {
  const seen: object[] = []
  await findOrCreateMany(manager, Item, BAD_FIRST, { onProgress: (one) => void seen.push({ ...one }) })
  expect(seen.at(-1)).toEqual({ done: 4, created: 2, rejected: 1 })
})

test.each([1, 2])('a thousand refused inputs of %i kinds are not tried one by one', async (kinds) => {
  let sent = 0
  dataSource.logger.logQuery = () => void (sent += 1)
  const inputs = Array.from({ length: 1_000 }, (_, nth) => ({ text: 'a', n: 'bad', m: `${nth % kinds}` }))
  expect(new Set(told(await findOrCreateMany(manager, Item, inputs)))).toEqual(new Set(['error']))
  expect(sent).toBeLessThan(10)
})

describe('upsertByText', () => {
  const upsert = (rows: readonly Partial<Item>[]): Promise<object[]> => upsertByText(manager, Item, rows)

  test('a refused first row is told, and the others are written', async () => {
    expect(told(await upsert(BAD_FIRST))).toEqual(['error', 'new', 'new', 'found'])
    expect(await stored()).toMatchObject([{ text: 'a', n: 'later' }, { text: 'b' }])
  })
  test('a refused later row is told alone', async () => {
    const rows = [{ text: 'a', n: 'good' }, { text: 'a', n: 'bad' }, { text: 'a', m: 'x' }, { text: 'b' }]
    expect(told(await upsert(rows))).toEqual(['new', 'error', 'found', 'new'])
    expect(await stored()).toMatchObject([{ text: 'a', n: 'good', m: 'x' }, { text: 'b' }])
  })
  test('of rows whose columns were written together only the refused one is told', async () => {
    const rows = [
      { text: 'a', m: 'x' },
      { text: 'a', n: 'bad' },
      { text: 'a', m: 'y' },
    ]
    expect(told(await upsert(rows))).toEqual(['new', 'error', 'found'])
    expect(await stored()).toMatchObject([{ text: 'a', n: null, m: 'y' }])
  })
  test('all that were written have one entity, as the last has left it', async () => {
    const results = await upsert([
      { text: 'a', n: '1' },
      { text: 'a', n: '2' },
      { text: 'a', m: 'x' },
    ])
    const entities = results.map((result) => (result as { entity: Item }).entity)
    expect(new Set(entities).size).toBe(1)
    expect(entities[0]).toMatchObject({ n: '2', m: 'x' })
    expect(told(results)).toEqual(['new', 'found', 'found'])
  })
  test('rows are loaded in the order of the first inputs, although a later input was written in another round', async () => {
    await findOrCreateMany(manager, Item, [{ text: 'a' }, { text: 'b' }])
    const loaded: string[] = []
    const { subscribers } = dataSource
    subscribers.push({ afterLoad: ({ text }: Item) => void loaded.push(text) })
    try {
      await upsert([
        { text: 'a', n: '1' },
        { text: 'b', n: '1' },
        { text: 'a', n: '2' },
      ])
    } finally {
      subscribers.pop()
    }
    expect(loaded).toEqual(['a', 'b'])
  })
})

test('upserts of a text follow each other, however its scope is spelled', async () => {
  const tenant = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
  const scopes = [
    { tenant, number: '1' },
    { tenant, number: 1 as never },
    { tenant: tenant.toUpperCase(), number: '01' },
    { tenant: `{${tenant.replaceAll('-', '')}}`, number: '+1' },
  ]
  for (const one of scopes) {
    for (const other of scopes) {
      const inputs = [one, one, other].map((scope, n) => ({ ...scope, text: 'a', n }))
      await upsertByText(manager, Scoped, inputs)
      expect(await manager.find(Scoped)).toMatchObject([{ n: 2 }])
    }
  }
})
