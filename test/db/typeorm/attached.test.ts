import { DataSource, type DataSourceOptions, Entity, EventSubscriber, PrimaryGeneratedColumn } from 'typeorm'
import type { EntitySubscriberInterface, InsertEvent } from 'typeorm'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { DeclarationError, findOrCreate, UniqueText, UnsupportedDatabaseError, withUniqueText } from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { generate, runAll } from '../../support/generated'

const db = useDatabase()

const Page = entity('Page', { url: text({ normalize: lowerCase() }) })
type Page = InstanceType<typeof Page>
const PlainPage = entity('PlainPage', {}, { name: 'page' })
const Word = entity('Word', { text: text() })

const heard: string[] = []

@EventSubscriber()
class Listener implements EntitySubscriberInterface<Page> {
  listenTo(): typeof Page {
    return Page
  }
  afterInsert({ entity }: InsertEvent<Page>): void {
    heard.push(entity.url)
  }
}

const opened: DataSource[] = []

/** As any code would make it that knows nothing of unique texts. */
function make(options: Partial<Extract<DataSourceOptions, { type: 'postgres' }>> = {}): DataSource {
  const dataSource = new DataSource({ type: 'postgres', url: db.url, entities: [Page], ...options })
  opened.push(dataSource)
  return dataSource
}

const save = ({ manager }: DataSource, url: string): Promise<Page> => manager.save(manager.create(Page, { url }))

/** What one text needs: its function, that of chains and the library, and its triggers. */
const GUARD = { functions: 10, triggers: 6 }

async function guard(dataSource: DataSource): Promise<unknown> {
  const [counts] = (await dataSource.query(
    `select (select count(*)::int from pg_proc where proname like 'unique_text_%') as functions,
            (select count(*)::int from pg_trigger where tgname like 'unique_text_page__url%') as triggers`,
  )) as unknown[]
  return counts
}

beforeEach(async () => {
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public')
})

afterEach(async () => {
  const open = opened.splice(0).filter(({ isInitialized }) => isInitialized)
  await Promise.all(open.map((dataSource) => dataSource.destroy()))
})

describe('decorating is enough', () => {
  test('synchronize: true makes the guard, and the texts of save are normalized and refused', async () => {
    const dataSource = await make({ synchronize: true }).initialize()
    expect(await guard(dataSource)).toEqual(GUARD)
    expect(await save(dataSource, 'A')).toMatchObject({ url: 'a' })
    await expect(save(dataSource, 'a')).rejects.toMatchObject({ driverError: { code: '23505' } })
    expect(await findOrCreate(dataSource.manager, Page, { url: 'A' })).toMatchObject({ created: false })
  })

  test('a generated migration makes the guard, and its way back leaves nothing', async () => {
    const dataSource = await make().initialize()
    const { up, down } = await generate(dataSource)
    await runAll(dataSource, up)
    expect(await guard(dataSource)).toEqual(GUARD)
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
    await runAll(dataSource, down)
    expect(await guard(dataSource)).toEqual({ functions: 0, triggers: 0 })
  })

  test('synchronize(true), which drops the tables and leaves the functions, makes all anew', async () => {
    const dataSource = await make({ synchronize: true }).initialize()
    await dataSource.synchronize(true)
    expect(await guard(dataSource)).toEqual(GUARD)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'a' })).toMatchObject({ created: true })
  })

  test('entities made without their constructor are right', async () => {
    const dataSource = await make({ synchronize: true, entitySkipConstructor: true }).initialize()
    const [saved, found] = [await save(dataSource, 'A'), await findOrCreate(dataSource.manager, Page, { url: 'A' })]
    expect(saved).toMatchObject({ url: 'a' })
    expect(found).toMatchObject({ created: false, entity: { id: saved.id } })
    expect(found.entity).toBeInstanceOf(Page)
  })

  test('a DataSource with replication has the guard on its master', async () => {
    const replication = { master: { url: db.url }, slaves: [{ url: db.url }] }
    const dataSource = await make({ synchronize: true, replication }).initialize()
    expect(await guard(dataSource)).toEqual(GUARD)
    expect(await save(dataSource, 'A')).toMatchObject({ url: 'a' })
  })

  test('a DataSource that is destroyed and initialised again is attached once', async () => {
    const dataSource = await make({ synchronize: true }).initialize()
    const hooked: unknown = Reflect.get(dataSource.driver, 'createSchemaBuilder')
    const count = dataSource.subscribers.length
    await dataSource.destroy()
    await dataSource.initialize()
    expect(Reflect.get(dataSource.driver, 'createSchemaBuilder')).toBe(hooked)
    expect(dataSource.subscribers).toHaveLength(count)
    expect(await save(dataSource, 'A')).toMatchObject({ url: 'a' })
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  })

  test('an entity that comes with setOptions() is attached at the next initialize()', async () => {
    const dataSource = await make({ entities: [PlainPage], synchronize: true }).initialize()
    await dataSource.destroy()
    await dataSource.setOptions({ entities: [Page] }).initialize()
    expect(await guard(dataSource)).toEqual(GUARD)
    expect(await save(dataSource, 'A')).toMatchObject({ url: 'a' })
  })

  test.each([
    ['a list', [Listener]],
    ['an object', { Listener }],
  ])("a user's subscribers, given as %s, stay and hear the stored text", async (_, subscribers) => {
    heard.length = 0
    const dataSource = await make({ synchronize: true, subscribers }).initialize()
    expect(await save(dataSource, 'A')).toMatchObject({ url: 'a' })
    expect(heard).toEqual(['a'])
    expect(dataSource.options.subscribers).toBe(subscribers)
  })
})

describe('DataSources and copies of the package', () => {
  test('a DataSource without unique texts has nothing of ours', async () => {
    await make({ synchronize: true }).initialize()
    const other = await make({ entities: [PlainPage] }).initialize()
    expect(Object.hasOwn(other.driver, 'createSchemaBuilder')).toBe(false)
    expect(other.subscribers).toEqual([])
  })

  test('two DataSources with one entity are each right', async () => {
    const [one, two] = [await make({ synchronize: true }).initialize(), await make().initialize()]
    const { id } = await save(one, 'A')
    expect(await findOrCreate(two.manager, Page, { url: 'A' })).toMatchObject({ created: false, entity: { id } })
    expect(await save(two, 'B')).toMatchObject({ url: 'b' })
  })

  test('two copies of the package share one hook and one pair of subscribers', async () => {
    vi.resetModules()
    const copy = await import('../../../src')
    expect(copy.UniqueText).not.toBe(UniqueText)
    @Entity({ name: 'note' })
    class Note {
      @PrimaryGeneratedColumn('identity') id!: number
      @copy.UniqueText({ normalize: lowerCase() }) text!: string
    }
    const dataSource = await copy.withUniqueText(make({ entities: [Note, Page], synchronize: true })).initialize()
    expect(dataSource.subscribers).toHaveLength(2)
    const { up } = await generate(dataSource)
    expect(up).toEqual([])
    // Each of the copies with the other's entity.
    const { manager } = dataSource
    expect(await copy.findOrCreate(manager, Page, { url: 'A' })).toMatchObject({ created: true })
    expect(await findOrCreate(manager, Note, { text: 'A' })).toMatchObject({ created: true, entity: { text: 'a' } })
    expect(await save(dataSource, 'B')).toMatchObject({ url: 'b' })
  })

  test('once() of one copy of the package finds the OnceToken of the other', async () => {
    vi.resetModules()
    const copy = await import('../../../src/once')
    expect(copy.OnceToken).not.toBe(OnceToken)
    const { manager } = await withUniqueText(make({ entities: [OnceToken], synchronize: true })).initialize()
    const work = vi.fn<() => string>(() => 'answer')
    await copy.once(manager, 'token', work)
    expect(await once(manager, 'token', work)).toMatchObject({ answer: 'answer', replayed: true })
    expect(work).toHaveBeenCalledTimes(1)
  })

  test('another database is refused by name', async () => {
    const dataSource = new DataSource({ type: 'cockroachdb', timeTravelQueries: false, entities: [Page] })
    const builder = dataSource as unknown as { buildMetadatas(): Promise<void> }
    await expect(builder.buildMetadatas()).rejects.toThrow(
      new UnsupportedDatabaseError(
        '@UniqueText on Page.url needs PostgreSQL, and this DataSource is of type "cockroachdb". Use type "postgres".',
      ),
    )
  })
})

describe('withUniqueText', () => {
  test('lets a command remove the guard of the last declaration', async () => {
    await make({ synchronize: true }).initialize()
    const dataSource = await withUniqueText(make({ entities: [PlainPage] })).initialize()
    await dataSource.synchronize()
    expect(await guard(dataSource)).toEqual({ functions: 8, triggers: 0 })
  })

  test('without it that command fails, and changes nothing', async () => {
    const before = await make({ synchronize: true }).initialize()
    const dataSource = await make({ entities: [PlainPage] }).initialize()
    await expect(dataSource.synchronize()).rejects.toMatchObject({ driverError: { code: '2BP01' } })
    expect(await guard(before)).toEqual(GUARD)
    expect(await generate(before)).toEqual({ up: [], down: [] })
  })

  test('called again, changes the options that are given and leaves the others', async () => {
    const dataSource = withUniqueText(withUniqueText(make({ synchronize: true }), { prepare: false }), {
      tenantsBySearchPath: true,
    })
    await dataSource.initialize()
    const prepared = async (): Promise<unknown> => {
      await findOrCreate(dataSource.manager, Page, { url: 'a' })
      return await dataSource.query(`select from pg_prepared_statements where name like 'unique%'`)
    }
    expect(await prepared()).toEqual([])
    await dataSource.destroy()
    await withUniqueText(dataSource, { prepare: true }).initialize()
    expect(dataSource.subscribers).toHaveLength(2)
    expect(await prepared()).not.toEqual([])
  })

  test('is refused on a DataSource that is initialised', async () => {
    const dataSource = await make({ entities: [Word], synchronize: true }).initialize()
    expect(() => withUniqueText(dataSource)).toThrow(DeclarationError)
    expect(() => withUniqueText(dataSource)).toThrow('must be called before initialize()')
  })
})
