import { type AddressInfo, createServer, type Server } from 'node:net'
import { PGlite } from '@electric-sql/pglite'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, TextTakenError, UniqueText, upsertByText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { findHolder, Name, rename, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin } from '../../../src/numbers'
import { once, OnceToken } from '../../../src/once'
import { generate, migrate, runAll } from '../../support/generated'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity()
class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle', former: 'redirect' }) handle!: string
}

@Entity()
class Comment {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'integer' }) page!: number
  @NumberWithin({ scope: ['page'], count: true }) number!: number
}

let pglite: PGlite
let server: Server
let dataSource: DataSource

/** A migration is longer than what a socket passes at once, and PGlite takes whole messages only. */
function endsWithMessage(received: Buffer, isFirst: boolean): boolean {
  let end = 0
  // The first message of a connection has no type before its length.
  for (let at = isFirst ? 0 : 1; at + 4 <= received.length; at = end + 1) end = at + received.readUInt32BE(at)
  return end === received.length
}

beforeAll(async () => {
  pglite = await PGlite.create()
  // PostgreSQL's protocol over a socket, for one client at a time.
  server = createServer((socket) => {
    let answered = Promise.resolve()
    let [received, isFirst] = [Buffer.alloc(0), true]
    socket.on('data', (part) => {
      received = Buffer.concat([received, part])
      if (!endsWithMessage(received, isFirst)) return
      const sent = new Uint8Array(received)
      ;[received, isFirst] = [Buffer.alloc(0), false]
      answered = answered.then(async () => void socket.write(await pglite.execProtocolRaw(sent)))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  dataSource = new DataSource({
    type: 'postgres',
    url: `postgres://postgres@127.0.0.1:${port}/postgres`,
    entities: [Page, User, Comment, Name, OnceToken],
    poolSize: 1,
  })
  await dataSource.initialize()
}, 60_000)

afterAll(async () => {
  await dataSource?.destroy()
  await new Promise((resolve) => server?.close(resolve))
  await pglite?.close()
})

const query = async (sql: string, parameters: unknown[] = []): Promise<unknown> =>
  await dataSource.query(sql, parameters)

test('PGlite migrates, keeps texts, names, numbers and tokens, and reverts', { timeout: 60_000 }, async () => {
  const { manager } = dataSource
  const { down } = await migrate(dataSource)
  expect(await generate(dataSource)).toStrictEqual({ up: [], down: [] })

  const [anchor, other] = await findOrCreateMany(manager, Page, [
    { url: STEVENS[0] },
    { url: STEVENS[1] },
    { url: STEVENS[0] },
  ])
  expect([anchor, other]).toMatchObject([{ created: true }, { created: true }])
  expect(await query('SELECT "urlHashNumber" AS n FROM page ORDER BY n')).toStrictEqual([{ n: 0 }, { n: 1 }])
  expect(await findOrCreate(manager, Page, { url: STEVENS[1] })).toMatchObject({
    created: false,
    entity: { title: null },
  })
  expect(await rejection(query('INSERT INTO page (url) VALUES ($1)', [STEVENS[1]]))).toBeInstanceOf(TextTakenError)
  await query('DELETE FROM page WHERE "urlHashNumber" = 0')
  expect(await query('SELECT url, "urlHashNumber" AS n FROM page')).toStrictEqual([{ url: STEVENS[1], n: 0 }])
  expect(await upsertByText(manager, Page, { url: STEVENS[1], title: 'b' }, { update: ['title'] })).toMatchObject({
    created: false,
    entity: { title: 'b' },
  })

  const user = await insertOrFail(manager, User, { handle: 'ada' })
  await rename(manager, User, user.id, { handle: 'countess' })
  expect(await findHolder(manager, 'handle', 'ada', { former: true })).toMatchObject({ name: 'countess' })
  expect(await rejection(manager.insert(User, { handle: 'countess' }))).toBeInstanceOf(TextTakenError)

  const comments = await manager.save(Comment, [{ page: 2 }, { page: 2 }, { page: 3 }])
  expect(comments.map(({ number }) => number)).toStrictEqual([1, 2, 1])
  expect(await countWithin(manager, Comment, { page: 2 })).toBe(2)

  const pay = async (): Promise<unknown> => await once(manager, 'token', async (own) => await own.count(Page))
  expect([await pay(), await pay()]).toMatchObject([
    { answer: 1, replayed: false },
    { answer: 1, replayed: true },
  ])

  expect((await doctor(dataSource)).findings).toStrictEqual([])
  await runAll(dataSource, down)
})
