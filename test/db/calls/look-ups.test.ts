import { createHash } from 'node:crypto'
import { AfterLoad, Column, DataSource, Entity, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  TextRejectedError,
  UniqueText,
  uniqueTextMethods,
  withUniqueText,
} from '../../../src'
import { url } from '../../../src/text'
import { textCondition } from '../../../src/typeorm-calls'
import { Url } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { createDatabase, dropDatabase, inDatabase } from '../../support/databases'
import { column, embedded, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const Author = entity('Author', { name: column('text') })
type Author = InstanceType<typeof Author>

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url(), scope: ['site'] }) url!: string
  @Column({ type: 'text', default: 'here' }) site!: string
  @Column({ type: 'text', default: 'nowhere' }) stored!: string
  @ManyToOne(() => Author, { eager: true, nullable: true }) author!: Author | null
  @AfterLoad() hear(): void {
    heard?.()
  }
}

const Word = entity('Word', { text: text({ nullable: true }) })

let heard: (() => void) | undefined
const dataSource = db.useDataSource([Page, Word, Url, Author], { emptied: false })
const { manager } = dataSource

class Place {
  @Column({ type: 'text' }) city!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
}

const House = entity('House', { at: embedded(() => Place) })
UniqueText({ as: 'place', columns: ['at.city'] })(House)

test('a condition beside the text is refused, within its embedded too', async () => {
  const { manager } = await db.dataSource([House])
  const at = { city: 'Ulm', note: 'new' }
  await findOrCreate(manager, House, { at })
  expect(await findOneByText(manager, House, { at: { city: 'Ulm' } })).toMatchObject({ at })
  const error = await rejection(findOneByText(manager, House, { at }))
  expect(error).toBeInstanceOf(DeclarationError)
  expect(String(error)).toContain('Leave out "at.note"')
  expect(() => textCondition(manager, House, 'h', { at })).toThrow('"at.note" is not one')
})

describe('findOneByText', () => {
  test.each([['no URL'], ['http://example.com/\0'], ['http://example.com/\uD800'], ['']])(
    'finds nothing for a text that is refused, and sends nothing: %j',
    async (text) => {
      const sent = vi.spyOn(dataSource.logger, 'logQuery')
      expect(await findOneByText(manager, Page, { url: text })).toBeNull()
      expect(sent).not.toHaveBeenCalled()
      sent.mockRestore()
    },
  )

  test('finds nothing in a scope that cannot be stored, nor for parts of a text that are refused together', async () => {
    expect(await findOneByText(manager, Page, { url: 'http://a/', site: '\0' })).toBeNull()
    expect(await findOneByText(manager, Url, { scheme: 'ftp', host: 'a', path: '/' })).toBeNull()
  })

  test('finds nothing for null, whose rows hold no text', async () => {
    await manager.insert(Word, { text: null })
    expect(await findOneByText(manager, Word, { text: null })).toBeNull()
  })

  test.each<[object]>([[{ url: 1 }], [{ url: undefined }], [{ ulr: 'http://a/' }], [{}], [{ url: ['http://a/'] }]])(
    'refuses what is no text, for that is a mistake in the program: %j',
    async (values) => {
      const error = await rejection(findOneByText(manager, Page, values))
      expect([TextRejectedError, DeclarationError]).toContain((error as Error).constructor)
    },
  )
})

describe('replica: true', () => {
  const server = inject('serverUrl')
  const name = `T ${createHash('sha256').update(`replica ${db.url}`).digest('hex').slice(0, 12)}`
  const replicaUrl = inDatabase(server, name)
  /** Writes to one database, and reads from another. */
  let replicated: DataSource

  beforeAll(async () => {
    await dropDatabase(server, name)
    await createDatabase(server, name, 'UTF8')
    const replica = withUniqueText(
      new DataSource({ type: 'postgres', url: replicaUrl, synchronize: true, entities: [Page, Author] }),
    )
    await replica.initialize()
    const author = await replica.manager.save(replica.manager.create(Author, { name: 'of the replica' }))
    await replica.manager.insert(Page, { url: 'http://a/', stored: 'on the replica', author })
    await replica.destroy()
    await manager.insert(Page, { url: 'http://a/', stored: 'on the master' })
    replicated = withUniqueText(
      new DataSource({
        type: 'postgres',
        entities: [Page, Author],
        replication: { master: { url: db.url }, slaves: [{ url: replicaUrl }] },
      }),
    )
    await replicated.initialize()
  })
  afterAll(async () => {
    await replicated.destroy()
    await dropDatabase(server, name)
  })

  const page = { url: 'http://a/' }

  test('reads from a replica, relations too, and without it from the master', async () => {
    const { manager } = replicated
    expect(await findOneByText(manager, Page, page, { replica: true })).toMatchObject({
      stored: 'on the replica',
      author: { name: 'of the replica' },
    })
    expect(await findOneByText(manager, Page, page)).toMatchObject({ stored: 'on the master', author: null })
    expect(await findOneByText(manager, Page, page, { replica: false })).toMatchObject({ stored: 'on the master' })
  })

  test('holds for calls at once, which share their look-ups with none of the master', async () => {
    const calls = Array.from({ length: 40 }, async (_, index) => {
      const found = await findOneByText(replicated.manager, Page, page, { replica: index % 2 === 0 })
      return found?.stored
    })
    expect(await Promise.all(calls)).toEqual(
      calls.map((_, index) => (index % 2 === 0 ? 'on the replica' : 'on the master')),
    )
  })

  test('holds after a listener has run, which gets no connection of ours', async () => {
    const listened = vi.fn()
    heard = listened
    const found = await findOneByText(replicated.manager, Page, page, { replica: true, relationLoadStrategy: 'query' })
    heard = undefined
    expect(listened).toHaveBeenCalledTimes(1)
    expect(found).toMatchObject({ author: { name: 'of the replica' } })
  })

  test('is an option of the methods of a repository', async () => {
    const pages = replicated.getRepository(Page).extend(uniqueTextMethods)
    expect(await pages.findOneByText(page, { replica: true })).toMatchObject({ stored: 'on the replica' })
  })

  test('reads within a transaction what the transaction sees', async () => {
    await replicated.transaction(async (manager) => {
      expect(await findOneByText(manager, Page, page, { replica: true })).toMatchObject({ stored: 'on the master' })
    })
  })

  test('reads from the only server where there is no replica', async () => {
    const found = await findOneByText(manager, Page, page, { replica: true })
    expect(found).toMatchObject({ stored: 'on the master' })
  })

  test('find-or-create always looks at the master', async () => {
    const { entity, created } = await findOrCreate(replicated.manager, Page, page)
    expect({ created, stored: entity.stored, author: entity.author }).toEqual({
      created: false,
      stored: 'on the master',
      author: null,
    })
    const error = await rejection(findOrCreate(replicated.manager, Page, page, { replica: true } as object))
    expect(String(error)).toContain('findOrCreate(): there is no option "replica"')
  })
})
