import { randomUUID } from 'node:crypto'
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm'
import { findOrCreateMany, UniqueText } from '../../../src'
import type { DoctorFinding } from '../../../src/doctor'
import { Name } from '../../../src/names'
import { OnceToken } from '../../../src/once'
import { Url } from '../../../src/url'
import { runOnce } from '../../support/databases'
import { partitionedByHash } from '../../support/partitions'
import { type Template, useTemplate } from '../../support/template'
import { Comment, fill, ENTITIES, Organization, Page, Person, Scoped, Soft, Ticket, User, Visit } from './entities'

/** Its rows are in three partitions. */
@Entity()
export class Shard {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('integer') shop!: number
  @UniqueText({ scope: ['shop'], spread: 'hash' }) url!: string
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

/**
 * Call at the top of a test file: a well-made database with rows in every table.
 *
 * @param more entities, and what fills their tables
 */
export function usePlanted(
  more: readonly (new () => object)[] = [],
  fillMore: (dataSource: DataSource) => Promise<void> = async () => {},
): Template {
  return useTemplate(async (url) => {
    await runOnce(url, partitionedByHash('shard', 3))
    const entities = [...ENTITIES, Shard, OnceToken, ...more]
    const dataSource = new DataSource({ type: 'postgres', url, synchronize: true, entities })
    await dataSource.initialize()
    await fill(dataSource)
    const ten = Array.from({ length: 10 }, (_, index) => ({ shop: index % 2, url: `http://s/${index}` }))
    await findOrCreateMany(dataSource.manager, Shard, ten)
    await dataSource.manager.insert(OnceToken, [{ token: 'a' }, { token: 'b' }])
    await fillMore(dataSource)
    await dataSource.destroy()
  })
}

/** `Page.url check.different`, each once. */
export const inShort = (findings: readonly DoctorFinding[]): string[] => [
  ...new Set(
    findings.map(({ entity, property, code }) => `${entity}${property === null ? '' : `.${property}`} ${code}`),
  ),
]
