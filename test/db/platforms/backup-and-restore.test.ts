import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { Client } from 'pg'
import { Column, DataSource, DeleteDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, insertOrFail } from '../../../src'
import { Name, rename, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin, recount } from '../../../src/numbers'
import { inDatabase } from '../../support/databases'
import { startServer, wholePostgres } from '../../support/debian-postgres'
import { STEVENS } from '../../support/md5-collisions'
import { Page } from '../../support/titled-page'

@Entity()
class User {
  @PrimaryGeneratedColumn() id!: number
  @UniqueName({ namespace: 'handle', former: { reserveFor: '90 days' } }) handle!: string
}

/** Its table comes after that of its scopes, in a dump too. */
@Entity()
class Post {
  @PrimaryGeneratedColumn() id!: number
  @Column({ type: 'integer' }) topic!: number
  @NumberWithin({ scope: ['topic'], count: true }) number!: number
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
}

/** Its table comes before that of its scopes. */
@Entity()
class Comment extends Post {}

/** Without a scope, so that its table of scopes has one row. */
@Entity()
class Ticket {
  @PrimaryGeneratedColumn() id!: number
  @NumberWithin({ scope: [], count: true }) number!: number
}

const ROOT = path.resolve(import.meta.dirname, '../../..')
const ENTITIES = [Page, User, Name, Post, Comment, Ticket]
const PATIENCE = { timeout: 240_000 }
const bin = wholePostgres()

/** pg_dump refuses a server that is newer than itself: this one is of its version. */
describe.skipIf(bin === undefined)('docs/backup-and-restore.md (needs a Postgres of Debian)', PATIENCE, () => {
  let server: Awaited<ReturnType<typeof startServer>>
  let folder: string
  let commands: readonly string[]
  let from: DataSource
  let to: DataSource
  let turn = 0

  beforeAll(async () => {
    server = await startServer(bin ?? '')
    folder = await mkdtemp(path.join(tmpdir(), 'unique-text-restore-'))
    const page = await readFile(path.join(ROOT, 'docs/backup-and-restore.md'), 'utf8')
    commands = [...page.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, command = '']) => command.trim())
  }, PATIENCE.timeout)
  afterAll(async () => {
    await server?.remove()
    if (folder) await rm(folder, { recursive: true })
  })
  beforeEach(async () => {
    turn += 1
    from = await opened(`from ${turn}`)
    await fill(from)
  })
  afterEach(async () => {
    for (const one of [from, to]) if (one?.isInitialized) await one.destroy()
  })

  /** A new database, with the tables of the entities. */
  async function opened(name: string, synchronize = true): Promise<DataSource> {
    const client = new Client({ connectionString: server.url })
    await client.connect()
    await client.query(`create database "${name}"`)
    await client.end()
    const url = inDatabase(server.url, name)
    return await new DataSource({ type: 'postgres', url, entities: ENTITIES, synchronize }).initialize()
  }

  async function fill({ manager }: DataSource): Promise<void> {
    for (const url of STEVENS) await findOrCreate(manager, Page, { url })
    await insertOrFail(manager, User, [{ handle: 'ada' }, { handle: 'grace' }])
    await rename(manager, User, { id: 1 }, { handle: 'lovelace' })
    for (const entity of [Post, Comment]) {
      await manager.insert(entity, [{ topic: 1 }, { topic: 1 }, { topic: 2 }, { topic: 1 }])
      await manager.softDelete(entity, { topic: 1, number: 2 })
    }
    await manager.insert(Ticket, [{}, {}])
  }

  /** What anybody can see of the promises. */
  async function seen({ manager }: DataSource): Promise<Record<string, unknown>> {
    const counts = [Post, Comment].map(async (entity) => [
      await countWithin(manager, entity, { topic: 1 }),
      await countWithin(manager, entity, { topic: 2 }),
      (await manager.find(entity, { withDeleted: true, order: { id: 'ASC' } })).map(({ number }) => number),
    ])
    return {
      texts: (await Promise.all(STEVENS.map(async (url) => await findOneByText(manager, Page, { url })))).map(
        (one) => one?.url,
      ),
      taken: await manager.insert(User, { handle: 'ada' }).catch((error: unknown) => (error as { code: string }).code),
      names: (await manager.find(Name, { order: { id: 'ASC' } })).map(({ text, state }) => `${text} ${state}`),
      counts: await Promise.all(counts),
      tickets: await countWithin(manager, Ticket, {}),
    }
  }

  async function run(command: string): Promise<string> {
    const cli = path.join(ROOT, 'src/cli/main.ts')
    const script = `npx() { shift; (cd "${ROOT}" && node --import tsx "${cli}" "$@"); }\nset -e\n${command.replaceAll('data-source.js', path.join(folder, 'data-source.mts'))}`
    const env = {
      PATH: `${bin}:${path.dirname(process.execPath)}:${process.env['PATH']}`,
      FROM: String((from.options as { url?: string }).url),
      TO: String((to.options as { url?: string }).url),
      HOME: folder,
    }
    await writeFile(
      path.join(folder, 'data-source.mts'),
      `import { DataSource, EntitySchema } from ${JSON.stringify(path.join(ROOT, 'node_modules/typeorm/index.mjs'))}
       import numbers from ${JSON.stringify(path.join(ROOT, 'src/numbers/index.ts'))}
       import names from ${JSON.stringify(path.join(ROOT, 'src/names/index.ts'))}
       const User = new EntitySchema(names.uniqueNameSchema({ name: 'User', columns: {
         id: { type: 'integer', primary: true, generated: true },
       } }, { handle: { namespace: 'handle', former: { reserveFor: '90 days' } } }))
       const Comment = new EntitySchema(numbers.numberWithinSchema({ name: 'Comment', columns: {
         id: { type: 'integer', primary: true, generated: true }, topic: { type: 'integer' },
         deletedAt: { type: 'timestamptz', deleteDate: true, nullable: true },
       } }, { number: { scope: ['topic'], count: true } }))
       export default new DataSource({ type: 'postgres', url: process.env.TO, entities: [Comment, User, names.Name] })`,
    )
    return await promisify(execFile)('sh', ['-c', script], { env, cwd: folder }).then(
      ({ stdout }) => stdout,
      (error: { stdout: string; stderr: string }) => `failed: ${error.stdout}${error.stderr}`,
    )
  }

  test('a whole dump has everything', async () => {
    to = await opened(`to ${turn}`, false)
    await to.dropDatabase()
    expect(await run(commands[0] ?? '')).not.toMatch(/^failed/)
    expect(await seen(to)).toEqual(await seen(from))
  })

  test('data alone is restored with --disable-triggers; rows and counts agree, and the next ones too', async () => {
    to = await opened(`to ${turn}`)
    expect(await run(commands[1] ?? '')).not.toMatch(/^failed/)
    expect(await seen(to)).toEqual(await seen(from))
    const [next] = (await to.manager.insert(Post, { topic: 1 })).generatedMaps
    expect(next).toMatchObject({ number: 4 })
    expect(await countWithin(to.manager, Post, { topic: 1 })).toBe(3)
    expect(await run(commands[3] ?? '')).toMatch(/ 0 warnings|0 errors/)
  })

  test.each(['post', 'comment', 'names', '"user"'])(
    'with the triggers on, data of all and of %s is refused as a whole',
    async (table) => {
      to = await opened(`to ${turn}`)
      const restore = (commands[1] ?? '').replace('--disable-triggers', '')
      expect(await run(restore)).toMatch(/^failed.*(?:UT003|counts are restored|held cannot)/s)
      const only =
        table.includes('post') || table === 'comment' ? `-t ${table} -t 'numbers_${table}*'` : `-t names -t '${table}'`
      expect(await run(restore.replace('--data-only', `--data-only ${only}`))).toMatch(/^failed/)
      expect(await to.manager.count(Post)).toBe(0)
      expect(await to.query('select from names')).toEqual([])
    },
  )

  test.each(['', '--inserts --on-conflict-do-nothing'])(
    'with the triggers on, texts of one hash are restored (%s)',
    async (options) => {
      to = await opened(`to ${turn}`)
      const restore = (commands[1] ?? '').replace('--disable-triggers', `${options} -t page`)
      expect(await run(restore)).not.toMatch(/^failed/)
      expect((await seen(to)) as { texts: unknown }).toMatchObject({ texts: STEVENS })
      expect(await to.manager.count(Page)).toBe(2)
    },
  )

  test('counts that were left out are counted anew by the command, beside a writer', async () => {
    to = await opened(`to ${turn}`)
    expect(await run((commands[1] ?? '').replace('--data-only', `--data-only -T 'numbers_*'`))).not.toMatch(/^failed/)
    expect(await countWithin(to.manager, Comment, { topic: 1 })).toBe(0)
    expect(await run(commands[2] ?? '')).toBe('3 rows count.\n')
    expect(await countWithin(to.manager, Comment, { topic: 1 })).toBe(2)
    expect(await recount(to.manager, Post, { topic: 2 })).toBe(1)
    expect(await recount(to.manager, Post)).toBe(3)
    expect(await recount(to.manager, Ticket)).toBe(2)
    expect(await seen(to)).toEqual(await seen(from))
  })

  test('names that were left out come back when their table is dropped and made anew', async () => {
    to = await opened(`to ${turn}`)
    expect(await run((commands[1] ?? '').replace('--data-only', `--data-only -T names`))).not.toMatch(/^failed/)
    expect(await to.query('select from names')).toEqual([])
    await to.query('drop table names')
    await to.synchronize()
    expect(
      (await to.manager.find(Name, { order: { text: 'ASC' } })).map(({ text, state }) => `${text} ${state}`),
    ).toEqual(['grace held', 'lovelace held'])
    expect(
      await to.manager.insert(User, { handle: 'grace' }).catch((error: unknown) => (error as { code: string }).code),
    ).toBe('TEXT_TAKEN')
  })

  test.each([
    ['the table of names', '-T names'],
    ['indexes and triggers', '--section=pre-data --section=data'],
  ])('a migration makes what was left out: %s', async (_, options) => {
    to = await opened(`to ${turn}`, false)
    expect(await run((commands[0] ?? '').replace('pg_dump', `pg_dump ${options}`))).not.toMatch(/^failed/)
    await to.synchronize()
    const held = `select text, holder_key from names where state = 'held' order by text`
    expect(await to.query(held)).toEqual(await from.query(held))
    expect(await run(commands[3] ?? '')).toMatch(/0 errors/)
    const { texts, counts, tickets } = await seen(to)
    expect(await seen(from)).toMatchObject({ texts, counts, tickets })
  })
})
