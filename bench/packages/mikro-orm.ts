import { EntitySchema, MikroORM, type EntityManager } from '@mikro-orm/postgresql'
import type { Answer, PeerFactory } from '../peer'

interface Page {
  id: number
  url: string
  title: string | null
}

const answerOf = ({ id, url }: Page): Answer => ({ id: String(id), text: url, created: undefined })

/** `upsert` that ignores a conflict and then looks. Each call has an entity manager of its own, as a request has. */
export const mikroOrm: PeerFactory = {
  name: 'MikroORM: upsert',
  open: async ({ url: clientUrl, poolSize }) => {
    const schema = new EntitySchema<Page>({
      name: 'Page',
      tableName: 'mikro_orm',
      properties: {
        id: { type: 'integer', primary: true, autoincrement: true },
        url: { type: 'text', unique: true },
        title: { type: 'text', nullable: true },
      },
    })
    const orm = await MikroORM.init({
      clientUrl,
      dbName: new URL(clientUrl).pathname.slice(1),
      entities: [schema],
      pool: { min: 0, max: poolSize, idleTimeoutMillis: 3_600_000 },
    })
    await orm.schema.execute(
      'CREATE TABLE IF NOT EXISTS mikro_orm (id serial PRIMARY KEY, url text NOT NULL UNIQUE, title text)',
    )
    const one = async (em: EntityManager, url: string): Promise<Answer> =>
      answerOf(await em.upsert(schema, { url }, { onConflictAction: 'ignore' }))
    return {
      name: mikroOrm.name,
      table: 'mikro_orm',
      findOrCreate: async (url) => await one(orm.em.fork(), url),
      find: async (url) => {
        const page = await orm.em.fork().findOne(schema, { url })
        return page && { ...answerOf(page), created: false }
      },
      inTransaction: async (url) => await orm.em.fork().transactional(async (em) => await one(em, url)),
      findOrCreateMany: async (urls) => {
        const rows = urls.map((url) => ({ url }))
        const pages = await orm.em.fork().upsertMany(schema, rows, { onConflictAction: 'ignore' })
        return pages.map(answerOf)
      },
      fill: async (urls) => {
        await orm.em.fork().insertMany(
          schema,
          urls.map((url) => ({ url, title: null })),
        )
      },
      close: async () => {
        await orm.close()
      },
    }
  },
}
