import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { PrismaPg } from '@prisma/adapter-pg'
import { Pool } from 'pg'
import type { Answer, PeerFactory } from '../peer'

interface Page {
  readonly id: number
  readonly url: string
}

/** What we use of the client, which is generated. */
interface PageDelegate {
  upsert(query: { where: { url: string }; update: object; create: { url: string } }): Promise<Page>
  findUnique(query: { where: { url: string } }): Promise<Page | null>
  findMany(query: { where: { url: { in: readonly string[] } } }): Promise<Page[]>
  createMany(query: { data: readonly { url: string }[]; skipDuplicates?: boolean }): Promise<unknown>
}

interface Client {
  readonly page: PageDelegate
  $transaction<Value>(work: (client: Client) => Promise<Value>): Promise<Value>
  $disconnect(): Promise<void>
}

type GeneratedClient = { readonly PrismaClient: new (options: { adapter: PrismaPg }) => Client }

const GENERATED = path.join(__dirname, 'generated/client.ts')

/** Without network: no engine is used, and the path of one keeps the command from downloading it. */
async function generatedClient(): Promise<GeneratedClient> {
  if (!(await stat(GENERATED).catch(() => undefined))) {
    const cli = path.resolve(__dirname, '../node_modules/prisma/build/index.js')
    const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1' }
    await promisify(execFile)(process.execPath, [cli, 'generate', '--schema', path.join(__dirname, 'schema.prisma')], {
      cwd: path.dirname(__dirname),
      env,
    })
  }
  return (await import(GENERATED)) as GeneratedClient
}

const CREATE = 'CREATE TABLE IF NOT EXISTS prisma (id serial PRIMARY KEY, url text NOT NULL UNIQUE, title text)'

const answerOf = ({ id, url }: Page, created: boolean | undefined): Answer => ({ id: String(id), text: url, created })

/** `upsert` with nothing to update, which does not say whether it created the row. */
export const prisma: PeerFactory = {
  name: 'Prisma: upsert',
  open: async ({ url: connectionString, poolSize }) => {
    const pool = new Pool({ connectionString, max: 1 })
    await pool.query(CREATE)
    await pool.end()
    const { PrismaClient } = await generatedClient()
    const client = new PrismaClient({
      adapter: new PrismaPg({ connectionString, max: poolSize, idleTimeoutMillis: 0 }),
    })
    const one = async ({ page }: Client, url: string): Promise<Answer> =>
      answerOf(await page.upsert({ where: { url }, update: {}, create: { url } }), undefined)
    return {
      name: prisma.name,
      table: 'prisma',
      findOrCreate: async (url) => await one(client, url),
      find: async (url) => {
        const page = await client.page.findUnique({ where: { url } })
        return page && answerOf(page, false)
      },
      inTransaction: async (url) => await client.$transaction(async (transaction) => await one(transaction, url)),
      findOrCreateMany: async (urls) => {
        await client.page.createMany({ data: urls.map((url) => ({ url })), skipDuplicates: true })
        const pages = await client.page.findMany({ where: { url: { in: urls } } })
        const byText = new Map(pages.map((page) => [page.url, answerOf(page, undefined)]))
        return urls.map((url) => byText.get(url) ?? { id: '', text: '', created: undefined })
      },
      fill: async (urls) => {
        await client.page.createMany({ data: urls.map((url) => ({ url })) })
      },
      close: async () => {
        await client.$disconnect()
      },
    }
  },
}
