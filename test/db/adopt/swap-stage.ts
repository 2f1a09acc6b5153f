import type { Client } from 'pg'
import { Column, DeleteDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText, type UniqueTextClassOptions, type UniqueTextPropertyOptions } from '../../../src'
import { fewHashes } from '../../support/digests'
import type { Entityish } from './stage'

/** A text of one column, or of several, as one of the declarations of `page` has it. */
export interface Declared {
  readonly url?: UniqueTextPropertyOptions
  readonly whole?: Omit<UniqueTextClassOptions, 'as'>
}

/** The table `page` as an entity has it; every declaration of this file fits it. */
export function pageAs({ url, whole }: Declared): Entityish {
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'integer', default: 1 }) site!: number
    url!: string | null
    @Column({ type: 'text', nullable: true }) query!: string | null
    @Column({ type: 'text', nullable: true }) title!: string | null
    @DeleteDateColumn() deletedAt!: Date | null
  }
  if (url) UniqueText(url)(Page.prototype, 'url')
  else Column('text')(Page.prototype, 'url')
  if (whole) UniqueText({ as: 'whole', ...whole })(Page)
  Entity({ name: 'page' })(Page)
  return Page
}

/** One change of a declaration. */
export interface SwapCase {
  readonly name: string
  readonly before: Declared
  readonly after: Declared
  /** Texts that may stand in several rows under the declaration before, and not under the one after. */
  readonly narrows: boolean
}

const WHOLE = { columns: ['url', 'query'], digest: fewHashes(300) }

export const SWAPS: readonly SwapCase[] = [
  {
    name: 'a scope that goes',
    before: { url: { scope: ['site'], digest: fewHashes(300) } },
    after: { url: { digest: fewHashes(300) } },
    narrows: true,
  },
  { name: 'a scope that comes', before: { url: {} }, after: { url: { scope: ['site'] } }, narrows: false },
  { name: 'another digest', before: { url: {} }, after: { url: { digest: 'sha256' } }, narrows: false },
  {
    name: 'another digest of the same type',
    before: { url: { digest: fewHashes(90) } },
    after: { url: { digest: fewHashes(7) } },
    narrows: false,
  },
  { name: 'a text that may be NULL', before: { url: {} }, after: { url: { nullable: true } }, narrows: false },
  { name: 'a text that must not be NULL', before: { url: { nullable: true } }, after: { url: {} }, narrows: false },
  {
    name: 'a column more of a composed text',
    before: { whole: { ...WHOLE, columns: ['url'] } },
    after: { whole: { ...WHOLE, columns: ['url', { property: 'query', prefix: '?' }] } },
    narrows: false,
  },
  {
    name: 'a column less of a composed text',
    before: { whole: WHOLE },
    after: { whole: { ...WHOLE, columns: ['url'] } },
    narrows: true,
  },
  {
    name: 'rows that are deleted softly hold their texts again',
    before: { url: { ignoreDeleted: true } },
    after: { url: {} },
    narrows: true,
  },
  {
    name: 'rows that are deleted softly hold no text any more',
    before: { url: {} },
    after: { url: { ignoreDeleted: true } },
    narrows: false,
  },
  {
    name: 'scope, digest and NULL at once',
    before: { url: { digest: fewHashes(300) } },
    after: { url: { scope: ['site'], digest: 'sha256', nullable: true } },
    narrows: false,
  },
]

/** Rows that every declaration before takes; some of those that narrow meet a text twice. */
export async function fillPages(
  client: Pick<Client, 'query'>,
  { before, narrows }: SwapCase,
  rows: number,
): Promise<void> {
  const [url, site] = [narrows && before.url?.scope ? 'i / 2' : 'i', 'i % 2']
  const whole = before.whole?.columns.length === 2 ? 'i / 2' : url
  const deleted = before.url?.ignoreDeleted === true
  await client.query(
    `insert into page (site, url, query, "deletedAt")
     select ${site}, 'text ' || ${deleted ? 'i / 2' : whole}, case when i % 3 = 0 then null else (i % 2)::text end,
            ${deleted ? 'case when i % 2 = 1 then now() end' : 'null'}
       from generate_series(2, $1::int + 1) as i`,
    [rows],
  )
}
