import { Column, DataSource, type DataSourceOptions, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { URL_PATHS } from '../../test/support/md5-collisions'
import { importAll } from '../import'
import type { Answer, Peer, PeerFactory, Place } from '../peer'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  findOrCreateStream,
  UniqueText,
  type UniqueTextDataSourceOptions,
  type UniqueTextPropertyOptions,
  Url,
  url,
  withUniqueText,
} from '../support'

interface Page {
  id: number
  url: string
  title: string | null
}

/** A class of its own for each peer, so that each has a table. */
function pageClass(table: string, options: UniqueTextPropertyOptions = {}): new () => Page {
  @Entity(table)
  class OnePage {
    @PrimaryGeneratedColumn('identity', { generatedIdentity: 'BY DEFAULT' }) id!: number
    @UniqueText(options) url!: string
    @Column({ type: 'text', nullable: true }) title!: string | null
  }
  return OnePage
}

const EXTRA = { idleTimeoutMillis: 0 }

async function connect(
  { url: address, poolSize }: Place,
  entities: DataSourceOptions['entities'],
  settings?: UniqueTextDataSourceOptions,
): Promise<DataSource> {
  const options = { type: 'postgres', url: address, poolSize, extra: EXTRA, entities: entities ?? [] } as const
  const dataSource = new DataSource({ ...options, synchronize: true })
  return await (settings ? withUniqueText(dataSource, settings) : dataSource).initialize()
}

const answerOf = ({ entity, created }: { entity: Page; created: boolean }): Answer => ({
  id: String(entity.id),
  text: entity.url,
  created,
})

function pagePeer(name: string, table: string, dataSource: DataSource, target: new () => Page): Peer {
  const one = async (manager: EntityManager, text: string): Promise<Answer> =>
    answerOf(await findOrCreate(manager, target, { url: text }))
  const many = async (texts: readonly string[]): Promise<Answer[]> => {
    const results = await findOrCreateMany(
      dataSource.manager,
      target,
      texts.map((text) => ({ url: text })),
    )
    return results.map((result) => {
      if ('error' in result) throw result.error
      return answerOf(result)
    })
  }
  return {
    name,
    table,
    findOrCreate: async (text) => await one(dataSource.manager, text),
    find: async (text) => {
      const entity = await findOneByText(dataSource.manager, target, { url: text })
      return entity ? answerOf({ entity, created: false }) : null
    },
    inTransaction: async (text) => await dataSource.transaction(async (manager) => await one(manager, text)),
    findOrCreateMany: many,
    fill: async (texts) => {
      await many(texts)
    },
    close: async () => {
      await dataSource.destroy()
    },
  }
}

/** `findOrCreate` and the other functions, on texts as they are. */
export const ours: PeerFactory = {
  name: 'ours',
  open: async (place) => {
    const target = pageClass('ours')
    return pagePeer(ours.name, 'ours', await connect(place, [target]), target)
  },
}

/** The same without sharing look-ups among callers. */
export const oursAlone: PeerFactory = {
  name: 'ours, coalesce: false',
  open: async (place) => {
    const target = pageClass('ours_alone')
    return pagePeer(oursAlone.name, 'ours_alone', await connect(place, [target], { coalesce: false }), target)
  },
}

/** The same with `normalize: url()`. */
export const oursNormalized: PeerFactory = {
  name: 'ours, url()',
  open: async (place) => {
    const target = pageClass('ours_normalized', { normalize: url() })
    const dataSource = await connect(place, [target])
    return {
      ...pagePeer(oursNormalized.name, 'ours_normalized', dataSource, target),
      collision: null,
      importLines: async (lines) => await importAll(dataSource, target.name, lines),
    }
  },
}

/** A stream of all texts, of which nothing is known beforehand. */
export const oursStream: PeerFactory = {
  name: 'ours, stream',
  open: async (place) => {
    const target = pageClass('ours_stream')
    const dataSource = await connect(place, [target])
    const { name, table, fill, close } = pagePeer(oursStream.name, 'ours_stream', dataSource, target)
    return {
      name,
      table,
      fill,
      close,
      findOrCreateMany: async (texts) => {
        const answers: Answer[] = []
        const rows = texts.map((text) => ({ url: text }))
        for await (const result of findOrCreateStream(dataSource, target, rows)) {
          if ('error' in result) throw result.error
          answers.push(answerOf(result))
        }
        return answers
      },
    }
  },
}

/** The entity `Url`. */
export const oursUrl: PeerFactory = {
  name: 'ours, Url',
  open: async (place) => {
    const dataSource = await connect(place, [Url])
    const [first, second] = URL_PATHS.path
    const one = async (text: string, manager: EntityManager): Promise<Answer> => {
      const entity = await Url.parse(text, manager)
      if (!entity) throw new Error('Url.parse returned null.')
      return { id: entity.id, text: entity.toString(), created: undefined }
    }
    return {
      name: oursUrl.name,
      table: 'urls',
      textSql: `scheme || '://' || host || coalesce(':' || nullif(port, 0), '') || path || coalesce('?' || query, '') || coalesce('#' || fragment, '')`,
      collision: [`https://example.com${first}`, `https://example.com${second}`],
      findOrCreate: async (text) => await one(text, dataSource.manager),
      inTransaction: async (text) => await dataSource.transaction(async (manager) => await one(text, manager)),
      findOrCreateMany: async (texts) => {
        const results = await Url.parseMany(texts, { manager: dataSource.manager })
        return results.map((result) => {
          if (result === null || 'error' in result) throw new Error('Url.parseMany refused a URL.')
          return { id: result.entity.id, text: result.entity.toString(), created: result.created }
        })
      },
      importLines: async (lines) => await importAll(dataSource, 'Url', lines),
      fill: async (texts) => await importAll(dataSource, 'Url', texts),
      close: async () => {
        await dataSource.destroy()
      },
    }
  },
}
