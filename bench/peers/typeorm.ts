import { Column, DataSource, Entity, In, PrimaryGeneratedColumn, QueryFailedError, type Repository } from 'typeorm'
import type { Answer, PeerFactory } from '../peer'
import { batches } from './raw'

interface Page {
  id: number
  url: string
  title: string | null
}

/** As TypeORM's documentation makes a column unique. */
function pageClass(table: string): new () => Page {
  @Entity(table)
  class OnePage {
    @PrimaryGeneratedColumn('identity', { generatedIdentity: 'BY DEFAULT' }) id!: number
    @Column({ type: 'text', unique: true }) url!: string
    @Column({ type: 'text', nullable: true }) title!: string | null
  }
  return OnePage
}

const UNIQUE_VIOLATION = '23505'
/** Parameters of a statement are counted by 16 bits. */
const BATCH_ROWS = 10_000

const answerOf = ({ id, url }: Page, created: boolean | undefined): Answer => ({ id: String(id), text: url, created })

interface Way {
  readonly name: string
  readonly table: string
  readonly one: (pages: Repository<Page>, text: string) => Promise<Answer>
  readonly many?: (pages: Repository<Page>, texts: readonly string[]) => Promise<readonly Answer[]>
}

function typeormPeer({ name, table, one, many }: Way): PeerFactory {
  return {
    name,
    open: async ({ url, poolSize }) => {
      const target = pageClass(table)
      const extra = { idleTimeoutMillis: 0 }
      const options = { type: 'postgres', url, poolSize, extra, synchronize: true } as const
      const dataSource = await new DataSource({ ...options, entities: [target] }).initialize()
      const pages = dataSource.getRepository(target)
      return {
        name,
        table,
        findOrCreate: async (text) => await one(pages, text),
        find: async (text) => {
          const page = await pages.findOneBy({ url: text })
          return page && answerOf(page, false)
        },
        inTransaction: async (text) =>
          await dataSource.transaction(async (manager) => await one(manager.getRepository(target), text)),
        ...(many ? { findOrCreateMany: async (texts) => await many(pages, texts) } : {}),
        fill: async (texts) => {
          await dataSource.query(`INSERT INTO ${table} (url) SELECT * FROM unnest($1::text[])`, [texts])
        },
        close: async () => {
          await dataSource.destroy()
        },
      }
    },
  }
}

/** What is written by hand most often: look, save, and look again where another was faster. */
export const typeormFindSave = typeormPeer({
  name: 'TypeORM: find, save, catch',
  table: 'typeorm_find_save',
  one: async (pages, url) => {
    const page = await pages.findOneBy({ url })
    if (page) return answerOf(page, false)
    try {
      return answerOf(await pages.save(pages.create({ url })), true)
    } catch (error) {
      const { code } = (error instanceof QueryFailedError ? error.driverError : {}) as { code?: unknown }
      if (code !== UNIQUE_VIOLATION) throw error
      return answerOf(await pages.findOneByOrFail({ url }), false)
    }
  },
})

/** `upsert` writes the row that it finds, and does not say which it did. */
export const typeormUpsert = typeormPeer({
  name: 'TypeORM: upsert',
  table: 'typeorm_upsert',
  one: async (pages, url) => {
    const { identifiers } = await pages.upsert({ url }, ['url'])
    return { id: String(identifiers[0]?.['id']), text: url, created: undefined }
  },
  many: async (pages, urls) => {
    const answers: Answer[] = []
    for (const batch of batches(urls, BATCH_ROWS)) {
      const { identifiers } = await pages.upsert(
        batch.map((url) => ({ url })),
        ['url'],
      )
      answers.push(...batch.map((url, at) => ({ id: String(identifiers[at]?.['id']), text: url, created: undefined })))
    }
    return answers
  },
})

/** An insert that ignores what is there, then a look. Only `raw` of its result can say what was inserted. */
export const typeormOrIgnore = typeormPeer({
  name: 'TypeORM: orIgnore, find',
  table: 'typeorm_or_ignore',
  one: async (pages, url) => {
    const { raw } = await pages.createQueryBuilder().insert().values({ url }).orIgnore().execute()
    return answerOf(await pages.findOneByOrFail({ url }), (raw as unknown[]).length > 0)
  },
  many: async (pages, urls) => {
    const byText = new Map<string, Answer>()
    for (const batch of batches(urls, BATCH_ROWS)) {
      await pages
        .createQueryBuilder()
        .insert()
        .values(batch.map((url) => ({ url })))
        .orIgnore()
        .execute()
      for (const page of await pages.findBy({ url: In(batch) })) byText.set(page.url, answerOf(page, undefined))
    }
    return urls.map((url) => byText.get(url) ?? { id: '', text: '', created: undefined })
  },
})
