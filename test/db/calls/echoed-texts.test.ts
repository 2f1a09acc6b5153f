import { types } from 'pg'
import type { DataSource, EntityManager } from 'typeorm'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, UniqueText, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { onlyRowOf } from '../../support/results'
import { column, entity, plain, text } from '../../support/entity'

const Note = entity('Note', { text: text(), title: plain() })
const BriefNote = entity('BriefNote', { text: text() })

const Place = entity('Place', {
  host: column('text'),
  path: plain(),
  query: column('varchar', { length: 20, nullable: true }),
  title: plain(),
})
UniqueText({ as: 'place', columns: ['path', { property: 'query', prefix: '?' }], scope: ['host'] })(Place)

const LONG = 'é'.repeat(100_000)

const db = useDatabase()
const dataSource = db.useDataSource([Note, Place])
const { manager } = dataSource

/** The bytes that the server sends meanwhile. */
async function received(work: (manager: EntityManager) => Promise<unknown>, source = dataSource): Promise<number> {
  const queryRunner = source.createQueryRunner()
  try {
    const { connection } = (await queryRunner.connect()) as { connection: { stream: { bytesRead: number } } }
    const before = connection.stream.bytesRead
    await work(queryRunner.manager)
    return connection.stream.bytesRead - before
  } finally {
    await queryRunner.release()
  }
}

describe('the server does not send back a text that was sent', () => {
  const ways: Readonly<Record<string, (manager: EntityManager, text: string) => Promise<unknown>>> = {
    findOrCreate: async (manager, text) => (await findOrCreate(manager, Note, { text })).entity.text,
    findOneByText: async (manager, text) => (await findOneByText(manager, Note, { text }))?.text ?? text,
    findOrCreateMany: async (manager, text) =>
      (await onlyRowOf(findOrCreateMany(manager, Note, [{ text }]))).entity.text,
    upsertByText: async (manager, text) => (await upsertByText(manager, Note, { text, title: 'new' })).entity.text,
    'upsertByText of many': async (manager, text) =>
      (await onlyRowOf(upsertByText(manager, Note, [{ text, title: 'newer' }]))).entity.text,
  }

  test.each(Object.entries(ways))('%s', async (_, way) => {
    for (let times = 0; times < 2; times += 1) {
      const texts: unknown[] = []
      const bytes = await received(async (manager) => texts.push(await way(manager, LONG)))
      expect(texts).toEqual([LONG])
      expect(bytes).toBeLessThan(50_000)
    }
  })
})

test('text columns that are NULL, empty or full come back as they are stored', async () => {
  const places = [
    { path: null, query: '' },
    { path: '', query: null },
    { path: 'a?', query: 'b' },
    { path: 'a', query: '?b' },
  ].map((place) => ({ ...place, host: 'a.example' }))
  for (const place of places) {
    for (const created of [true, false]) {
      expect(await findOrCreate(manager, Place, place)).toMatchObject({ created, entity: place })
    }
  }
  const results = await findOrCreateMany(manager, Place, places)
  expect(results).toMatchObject(places.map((entity) => ({ created: false, entity })))
})

describe('a text that a trigger changes', () => {
  beforeEach(async () => {
    await dataSource.query(`
      CREATE FUNCTION stored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        NEW.text := lower(NEW.text) || '"\\☃';
        NEW."textHash" := md5(NEW.text)::uuid;
        RETURN NEW;
      END $$;
      CREATE TRIGGER a_stored BEFORE INSERT OR UPDATE ON note FOR EACH ROW EXECUTE FUNCTION stored()`)
  })
  afterEach(() => dataSource.query('DROP FUNCTION stored CASCADE'))

  test('is the stored one in a row that was created', async () => {
    const { entity, created } = await findOrCreate(manager, Note, { text: 'ABC' })
    expect([entity.text, created]).toEqual(['abc"\\☃', true])
    const upserted = await upsertByText(manager, Note, { text: 'GHI', title: 'new' })
    expect(upserted).toMatchObject({ entity: { text: 'ghi"\\☃' }, created: true })
  })

  test('is the stored one in a row that was updated', async () => {
    await dataSource.query('ALTER TABLE note DISABLE TRIGGER a_stored')
    for (const text of ['ABC', 'DEF', 'GHI']) await findOrCreate(manager, Note, { text })
    await dataSource.query('ALTER TABLE note ENABLE TRIGGER a_stored')
    const one = await upsertByText(manager, Note, { text: 'ABC', title: 'new' })
    const many = await upsertByText(manager, Note, [
      { text: 'DEF', title: 'new' },
      { text: 'GHI', title: 'new' },
    ])
    expect([one, ...many]).toMatchObject(
      ['abc"\\☃', 'def"\\☃', 'ghi"\\☃'].map((text) => ({ entity: { text, title: 'new' }, created: false })),
    )
  })
})

test('a column that changes to NULL in one of several is told of too', async () => {
  await dataSource.query(`
    CREATE FUNCTION emptied() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.query := NULL;
      NEW."placeHash" := md5(NEW.path)::uuid;
      RETURN NEW;
    END $$;
    CREATE TRIGGER a_emptied BEFORE INSERT ON place FOR EACH ROW EXECUTE FUNCTION emptied()`)
  const given = { host: 'a.example', path: '/', query: 'b' }
  const { entity, created } = await findOrCreate(manager, Place, given)
  await dataSource.query('DROP FUNCTION emptied CASCADE')
  expect([entity.path, entity.query, created]).toEqual(['/', null, true])
})

describe("a text that a parser of the user's own reads", () => {
  /** The catalog is read by it too. */
  const upper = (text: string): string => (text.startsWith('~') ? text.toUpperCase() : text)
  const plain = types.getTypeParser(25, 'text')
  afterEach(() => types.setTypeParser(25, plain))

  const texts = async (source: DataSource, text: string): Promise<unknown[]> => {
    const { entity: created } = await findOrCreate(source.manager, Note, { text })
    const { entity: found } = await findOrCreate(source.manager, Note, { text })
    const many = await findOrCreateMany(source.manager, Note, [{ text }, { text: `${text}!` }])
    const again = await upsertByText(source.manager, Note, { text, title: 'a' })
    return [created, found, ...many.map((one) => 'entity' in one && one.entity), again.entity].map(
      (entity) => entity && entity.text,
    )
  }

  test('is what find() gives, whenever it was set', async () => {
    expect(await texts(dataSource, '~a')).toEqual(['~a', '~a', '~a', '~a!', '~a'])
    types.setTypeParser(25, upper)
    expect(await texts(dataSource, '~b')).toEqual(['~B', '~B', '~B', '~B!', '~B'])
    expect((await manager.findOneByOrFail(Note, { text: '~b' })).text).toBe('~B')
    types.setTypeParser(25, plain)
    expect(await texts(dataSource, '~c')).toEqual(['~c', '~c', '~c', '~c!', '~c'])
  })

  test('is what find() gives where a DataSource has parsers of its own', async () => {
    const own = { getTypeParser: (oid: number) => (oid === 25 ? upper : types.getTypeParser(oid)) }
    const other = await db.dataSource([Note], { extra: { types: own }, synchronize: false })
    expect(await texts(other, '~d')).toEqual(['~D', '~D', '~D', '~D!', '~D'])
  })
})

test('a text in a column of another type, here a domain, comes as it is stored', async () => {
  await dataSource.query(`CREATE DOMAIN brief AS text;
    CREATE TABLE brief_note (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text brief NOT NULL)`)
  const source = await db.dataSource([BriefNote])
  for (const created of [true, false]) {
    const bytes = await received(async (own) => {
      expect(await findOrCreate(own, BriefNote, { text: LONG })).toMatchObject({ created, entity: { text: LONG } })
    }, source)
    expect(bytes).toBeGreaterThan(LONG.length)
  }
})
