import { type Client, types } from 'pg'
import { Column, type DataSource, Entity, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

const db = useDatabase()

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'varchar', nullable: true }) title!: string | null
  @Column({ type: 'float8', nullable: true }) rank!: number | null
  @Column({ type: 'boolean', nullable: true }) hot!: boolean | null
  @Column({ type: 'bigint', nullable: true }) size!: bigint | string | null
  @Column({ type: 'timestamptz', nullable: true }) seen!: Date | null
  @Column({ type: 'bytea', nullable: true }) icon!: Buffer | null
  @Column({ type: 'text', array: true, nullable: true }) tags!: string[] | null
  @Column({ type: 'jsonb', nullable: true }) more!: unknown
}

// It makes the tables, and empties them before each test.
db.useDataSource([Page])

/** A pool of one connection. */
const open = async (extra: object = {}): Promise<DataSource> =>
  await db.dataSource([Page], { synchronize: false, extra: { max: 1, ...extra } })

/** That of the pool. */
async function clientOf(dataSource: DataSource): Promise<Client> {
  const queryRunner = dataSource.createQueryRunner()
  const client = (await queryRunner.connect()) as Client
  await queryRunner.release()
  return client
}

const VARCHAR = 1043

describe('a prepared statement', () => {
  test('is asked for the types of its columns once', async () => {
    const dataSource = await open()
    await findOrCreate(dataSource.manager, Page, { url: 'first' })
    const { connection } = (await clientOf(dataSource)) as unknown as { connection: NodeJS.EventEmitter }
    let told = 0
    connection.on('rowDescription', () => (told += 1))
    for (const url of ['first', 'second', 'first', 'third']) await findOrCreate(dataSource.manager, Page, { url })
    expect(told).toBe(0)
    for (let call = 0; call < 3; call += 1) await findOneByText(dataSource.manager, Page, { url: 'first' })
    expect(told).toBe(1)
  })

  test.each(['', 'é', '\u{1F600}\u{10FFFF}', 'a'.repeat(100_000), `${'é'.repeat(5_000)}"'\\\n\r\t`])(
    'sends and gives every text as it is (%#)',
    async (title) => {
      const dataSource = await open()
      const url = `text ${title.slice(0, 10)}`
      const [created, found] = [
        await findOrCreate(dataSource.manager, Page, { url, title }),
        await findOrCreate(dataSource.manager, Page, { url }),
      ]
      expect([created.created, found.created]).toEqual([true, false])
      expect(found.entity).toEqual(created.entity)
      expect(found.entity.title).toBe(title)
      expect(await dataSource.manager.findOneByOrFail(Page, { url })).toEqual(found.entity)
    },
  )

  test.each<Partial<Page>>([
    { rank: 1.5, hot: true, size: '9007199254740993' },
    { rank: Number.POSITIVE_INFINITY, hot: false, size: 9_007_199_254_740_993n },
    { rank: null, hot: null, size: null, title: null },
    { seen: new Date('2024-02-29T12:34:56.789Z'), title: 'a date' },
    { icon: Buffer.from([0, 1, 255]), tags: ['a', 'b"\\', ''], more: { a: [1, null, 'é'] } },
  ])('stores what an insert of TypeORM stores: %o', async (values) => {
    const dataSource = await open()
    await dataSource.manager.insert(Page, { url: 'by TypeORM', ...values } as object)
    const { entity } = await findOrCreate(dataSource.manager, Page, { url: 'ours', ...values })
    const expected = await dataSource.manager.findOneByOrFail(Page, { url: 'by TypeORM' })
    expect(entity).toEqual(Object.assign(expected, { id: entity.id, url: 'ours' }))
    expect(await findOneByText(dataSource.manager, Page, { url: 'ours' })).toEqual(entity)
  })
})

describe('parsers of the user', () => {
  test('that throw make the call fail, and the next one has a connection', async () => {
    let broken = false
    const getTypeParser = (type: number, format: 'text'): unknown => {
      const parse = types.getTypeParser(type, format) as (text: string) => unknown
      return (text: string) => (broken && type === VARCHAR ? fail() : parse(text))
    }
    const dataSource = await open({ types: { getTypeParser } })
    const title = 'given'
    await findOrCreate(dataSource.manager, Page, { url: 'a', title })
    broken = true
    const error = await rejection(findOrCreate(dataSource.manager, Page, { url: 'a' }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect(error).toMatchObject({ driverError: { message: 'of the user' } })
    // Stored, whatever the client makes of it.
    await rejection(findOrCreate(dataSource.manager, Page, { url: 'b', title }))
    broken = false
    expect(await findOrCreate(dataSource.manager, Page, { url: 'b' })).toMatchObject({
      created: false,
      entity: { title },
    })
  })

  test('count from the call on that comes after them', async () => {
    const dataSource = await open()
    await findOrCreate(dataSource.manager, Page, { url: 'a', title: 'given' })
    const titles = async (): Promise<unknown> =>
      (await findOrCreate(dataSource.manager, Page, { url: 'a' })).entity.title
    const parse = types.getTypeParser(VARCHAR)
    expect(await titles()).toBe('given')
    types.setTypeParser(VARCHAR, (text) => `${text}!`)
    expect(await titles()).toBe('given!')
    types.setTypeParser(VARCHAR, parse)
    const client = await clientOf(dataSource)
    client.setTypeParser(VARCHAR, (text) => `${text}?`)
    expect(await titles()).toBe('given?')
  })
})

test('a value that cannot be sent is refused before anything is, and the next call has a connection', async () => {
  const dataSource = await open()
  await findOrCreate(dataSource.manager, Page, { url: 'a' })
  const title = { toPostgres: fail } as unknown as string
  const error = await rejection(findOrCreate(dataSource.manager, Page, { url: 'b', title }))
  expect(error).toMatchObject({ driverError: { message: 'of the user' } })
  expect(await findOneByText(dataSource.manager, Page, { url: 'b' })).toBeNull()
})

test('a client whose query() somebody stands in front of, as tracing does, sees every statement', async () => {
  const dataSource = await open()
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  const client = await clientOf(dataSource)
  const seen: unknown[] = []
  const query = client.query.bind(client) as (...args: unknown[]) => unknown
  const traced = (...args: unknown[]): unknown => {
    const [{ text, name }] = args as [{ text?: string; name?: string }]
    seen.push([name?.slice(0, 12), text?.slice(0, 10)])
    return query(...args)
  }
  Object.assign(client, { query: traced })
  expect(await findOrCreate(dataSource.manager, Page, { url: 'first' })).toMatchObject({ created: false })
  expect(seen).toEqual([['unique_text_', 'WITH found']])
})

test('who traces statements by a callback in front of ours hears of each, in a transaction too', async () => {
  const dataSource = await open()
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  const client = await clientOf(dataSource)
  const heard: unknown[] = []
  const query = client.query.bind(client) as (...args: unknown[]) => unknown
  const traced = (...args: unknown[]): unknown => {
    const [given] = args
    // As OpenTelemetry looks for it, in a copy.
    const { callback } = { ...(given as { callback?: (...answer: unknown[]) => unknown }) }
    if (!callback) return query(...args)
    const hear = (...answer: unknown[]): unknown => {
      heard.push(answer[0] ?? 'done')
      return callback(...answer)
    }
    return query(Object.assign(given as object, { callback: hear }))
  }
  Object.assign(client, { query: traced })
  await findOrCreate(dataSource.manager, Page, { url: 'first' })
  expect(heard.splice(0)).toEqual(['done'])
  await dataSource.transaction(async (manager) => {
    const results = await findOrCreateMany(manager, Page, [{ url: 'first' }, { url: 'second' }])
    expect(results).toMatchObject([{ created: false }, { created: true }])
  })
  expect(heard).toEqual(['done'])
})

test('a client that sends before the last answer came takes our statements as it takes others', async () => {
  const dataSource = await open({ pipeline: true })
  const urls = Array.from({ length: 20 }, (_, index) => ({ url: `page ${index % 10}` }))
  const results = await Promise.all(urls.map(async (one) => await findOrCreate(dataSource.manager, Page, one)))
  expect(results.filter(({ created }) => created)).toHaveLength(10)
})

function fail(): never {
  throw new TypeError('of the user')
}
