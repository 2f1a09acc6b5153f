import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Client } from 'pg'
import { Column, type DataSource, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { findHolder, Name, rename, UniqueName } from '../../../src/names'
import { once as runOnceForToken, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { freePort, programPath, serverFolder, serverIdentity } from '../../support/debian-postgres'
import { fewHashes } from '../../support/digests'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ digest: fewHashes(4) }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity({ name: 'user' })
class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle', former: 'redirect' }) handle!: string
}

const pgbouncer = programPath('pgbouncer')
const db = useDatabase()

describe.skipIf(pgbouncer === undefined)('behind PgBouncer in transaction mode (needs the program pgbouncer)', () => {
  let folder: string
  let stop: () => Promise<void>
  let dataSource: DataSource
  let manager: EntityManager

  beforeAll(async () => {
    folder = await serverFolder('unique-text-pgbouncer-')
    const server = new URL(inject('serverUrl'))
    const port = await freePort()
    const name = decodeURIComponent(new URL(db.url).pathname.slice(1))
    const password = decodeURIComponent(server.password)
    const file = path.join(folder, 'pgbouncer.ini')
    await writeFile(
      file,
      `[databases]
pooled = host=${server.hostname} port=${server.port} dbname='${name}' user=${server.username} password='${password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
`,
      { mode: 0o644 },
    )
    // Migrations run past the pooler, which would change the session under them.
    await (await db.dataSource([Page, User, Name, OnceToken])).destroy()
    const child = spawn(pgbouncer ?? '', [file], { ...serverIdentity(), stdio: 'ignore' })
    const ended = once(child, 'exit')
    stop = async () => {
      child.kill('SIGINT')
      await ended
    }
    const url = `postgres://anybody@127.0.0.1:${port}/pooled?sslmode=disable`
    await untilItAnswers(url)
    const options = { url, synchronize: false, poolSize: 12 }
    dataSource = await db.dataSource([Page, User, Name, OnceToken], options, { prepare: false })
    manager = dataSource.manager
  })
  afterAll(async () => {
    await dataSource?.destroy()
    await stop?.()
    await rm(folder, { recursive: true, force: true })
  })

  test('calls that race on twelve connections for three of the server create each text once', async () => {
    const texts = Array.from({ length: 40 }, (_, index) => `page ${index % 10}`)
    const results = await Promise.all(texts.map(async (url) => await findOrCreate(manager, Page, { url })))
    expect(results.filter(({ created }) => created)).toHaveLength(10)
    const many = await findOrCreateMany(
      manager,
      Page,
      [...new Set([...texts, 'another'])].map((url) => ({ url })),
    )
    expect(many.filter((result) => 'entity' in result && result.created)).toHaveLength(1)
    expect(await upsertByText(manager, Page, { url: 'page 1', title: 'T' })).toMatchObject({ created: false })
  })

  test('a transaction keeps what is refused in it apart, and commits the rest', async () => {
    await manager.transaction(async (inner) => {
      await insertOrFail(inner, Page, { url: 'in a transaction' })
      await expect(insertOrFail(inner, Page, { url: 'in a transaction' })).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
      await findOrCreateMany(inner, Page, [{ url: 'one' }, { url: 'two' }])
    })
    expect(await manager.countBy(Page, { url: 'two' })).toBe(1)
  })

  test('names and tokens are what they are without it', async () => {
    const { id } = await manager.save(User, { handle: 'ada' })
    await rename(manager, User, id, { handle: 'grace' })
    expect(await findHolder(manager, 'handle', 'ada', { former: true })).toMatchObject({ name: 'grace', former: true })
    const work = async (inner: EntityManager): Promise<number> =>
      (await insertOrFail(inner, Page, { url: 'by once' })).id
    const answers = await Promise.all([1, 2, 3].map(async () => await runOnceForToken(manager, 'token', work)))
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1)
  })
})

async function untilItAnswers(url: string): Promise<void> {
  for (;;) {
    const client = new Client({ connectionString: url })
    client.on('error', () => {})
    try {
      await client.connect()
      return
    } catch {
      // Not yet.
    } finally {
      await client.end().catch(() => {})
    }
  }
}
