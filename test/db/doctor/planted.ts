import { randomUUID } from 'node:crypto'
import { Client } from 'pg'
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm'
import { afterAll, beforeAll, inject } from 'vitest'
import { findOrCreateMany, UniqueText } from '../../../src'
import { doctor, type DoctorFinding } from '../../../src/doctor'
import { Name } from '../../../src/names'
import { OnceToken } from '../../../src/once'
import { Url } from '../../../src/url'
import { createDatabase, dropDatabase, inDatabase } from '../../support/databases'
import { generate, migrate } from '../../support/generated'
import { Comment, fill, ENTITIES, Organization, Page, Person, Scoped, Soft, Ticket, User, Visit } from './entities'

/** Its rows are in three partitions. */
@Entity()
export class Shard {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('integer') shop!: number
  @UniqueText({ scope: ['shop'], spread: { partitions: 3 } }) url!: string
}

/** What a case looks at: the fewer tables, the sooner it is done. */
export const ABOUT = {
  texts: [Page, Visit, Scoped, Soft, Person],
  names: [User, Organization, Name],
  numbers: [Comment, Ticket],
  tokens: [OnceToken, Url],
  parts: [Shard],
} as const

export type About = keyof typeof ABOUT

/** A server's database that is made anew from a well-made one wherever a case has left it otherwise. */
export interface Planted {
  /** Connected as a superuser. */
  readonly client: Client
  /** A DataSource of the entities that a case is about. */
  readonly dataSource: (about: About) => Promise<DataSource>
  /** Says whether the next case needs a fresh one. */
  readonly spoil: (spoilt: boolean) => void
  readonly errors: (about: About) => Promise<DoctorFinding[]>
}

/** Call at the top of a test file. */
export function usePlanted(): { readonly begin: () => Promise<Planted> } {
  const serverUrl = inject('serverUrl')
  const [base, copy] = ['T base', 'T copy'].map((name) => `${name} ${process.pid}`) as [string, string]
  let current: (Planted & { readonly close: () => Promise<void>; spoilt: boolean }) | undefined

  beforeAll(async () => {
    await dropDatabase(serverUrl, base)
    await createDatabase(serverUrl, base)
    const dataSource = new DataSource({
      type: 'postgres',
      url: inDatabase(serverUrl, base),
      synchronize: true,
      entities: [...ENTITIES, Shard, OnceToken],
    })
    await dataSource.initialize()
    await fill(dataSource)
    const ten = Array.from({ length: 10 }, (_, index) => ({ shop: index % 2, url: `http://s/${index}` }))
    await findOrCreateMany(dataSource.manager, Shard, ten)
    await dataSource.manager.insert(OnceToken, [{ token: 'a' }, { token: 'b' }])
    await dataSource.destroy()
  })
  afterAll(async () => {
    await current?.close()
    for (const name of [copy, base]) await dropDatabase(serverUrl, name)
  })

  const open = async (): Promise<NonNullable<typeof current>> => {
    await dropDatabase(serverUrl, copy)
    const server = new Client({ connectionString: serverUrl })
    await server.connect()
    await server.query(`create database "${copy}" template "${base}"`)
    await server.end()
    const url = inDatabase(serverUrl, copy)
    const client = new Client({ connectionString: url })
    await client.connect()
    const dataSources = new Map<About, DataSource>()
    const dataSource = async (about: About): Promise<DataSource> => {
      const made = dataSources.get(about) ?? new DataSource({ type: 'postgres', url, entities: [...ABOUT[about]] })
      dataSources.set(about, made)
      return made.isInitialized ? made : await made.initialize()
    }
    return {
      client,
      dataSource,
      spoilt: false,
      spoil: (spoilt) => {
        if (current) current.spoilt = spoilt
      },
      errors: async (about) => {
        const { findings } = await doctor(await dataSource(about))
        return findings.filter(({ severity }) => severity === 'error')
      },
      close: async () => {
        await client.end()
        for (const one of dataSources.values()) if (one.isInitialized) await one.destroy()
      },
    }
  }

  return {
    begin: async () => {
      if (current?.spoilt === true) {
        await current.close()
        current = undefined
      }
      current ??= await open()
      return current
    },
  }
}

/** `Page.url check.different`, each once. */
export const inShort = (findings: readonly DoctorFinding[]): string[] => [
  ...new Set(
    findings.map(({ entity, property, code }) => `${entity}${property === null ? '' : `.${property}`} ${code}`),
  ),
]

/** Generates and runs a migration. @returns what is left to find and to generate afterwards */
export async function mend({ dataSource, errors }: Planted, about: About): Promise<readonly string[]> {
  const made = await dataSource(about)
  await migrate(made)
  return [...inShort(await errors(about)), ...(await generate(made)).up]
}
