import type { DataSource, DeepPartial } from 'typeorm'
import { literal, quote } from '../../src/sql/identifier'
import { isLive, type TextTable, tableName } from '../../src/sql/text-table'
import { textsOfEntity } from '../../src/registry/registry'
import { type StressEntity, StressPage, StressParts, StressScoped, StressSoft } from './entities'
import type { Random } from './random'

/** What must be unique. */
export interface Key {
  readonly text: string
  /** 0 where the table has no scope. */
  readonly tenant: number
}

/** A table under stress, and the SQL that its writers send. */
export interface Subject {
  readonly entity: new () => StressEntity
  readonly table: TextTable
  readonly relation: string
  readonly keys: readonly Key[]
  /** Texts are `text 00`, `text 01`, … up to this many. */
  readonly textCount: number
}

/** How an INSERT sends a row: which of hash, number and flag it brings. */
export type Form = 'fast' | 'slow' | 'numbered' | 'numbered without hash' | 'flagged'

/** The subjects of a DataSource that is initialised. */
export function subjectsOf(dataSource: DataSource, textCount: number): Subject[] {
  return [
    subjectOf(dataSource, StressPage, textCount, [0]),
    subjectOf(dataSource, StressScoped, Math.ceil(textCount / 2), [1, 2]),
    subjectOf(dataSource, StressParts, Math.ceil(textCount / 2), [1, 2]),
    subjectOf(dataSource, StressSoft, textCount, [0]),
  ]
}

function subjectOf(
  dataSource: DataSource,
  entity: new () => StressEntity,
  textCount: number,
  tenants: readonly number[],
): Subject {
  const [declaration] = textsOfEntity(dataSource.getMetadata(entity))
  if (!declaration) throw new TypeError(`${entity.name} declares no text.`)
  const { table } = declaration
  const texts = Array.from({ length: textCount }, (_, index) => `text ${String(index).padStart(2, '0')}`)
  const keys = texts.flatMap((text) => tenants.map((tenant) => ({ text, tenant })))
  return { entity, table, relation: tableName(table), keys, textCount }
}

export const isScoped = ({ table }: Subject): boolean => table.scope.length > 0

/** Rows that are deleted softly free their texts. */
export const isSoft = ({ table }: Subject): boolean => table.deleted !== undefined

/** What of the index an ON CONFLICT with a target must say beside the columns. */
export const indexCondition = ({ table }: Subject): string =>
  isLive(table, '')
    .map((live) => ` WHERE ${live}`)
    .join('')

/** Half of all work goes to a fifth of the texts: races need several clients at one chain, and chains that end. */
export function anyKey({ keys }: Subject, random: Random): Key {
  return random.chance(0.5) ? random.pick(keys.slice(0, Math.ceil(keys.length / 5))) : random.pick(keys)
}

/** Different keys. */
export function severalKeys({ keys }: Subject, random: Random, most: number): Key[] {
  return random.sample(keys, 2 + random.int(most - 1))
}

/** The object that find-or-create takes; padded now and then, so that the normalizer has work. */
export function inputOf(subject: Subject, { text, tenant }: Key, random: Random): DeepPartial<StressEntity> {
  const given = random.chance(0.2) ? `  ${text} ` : text
  return isScoped(subject) ? { text: given, tenant } : { text: given }
}

export const hashOf = ({ table }: Subject, { text }: Key): string => literal(table.digest.js(text))

/** Another text with the same hash, in the same scope. */
export function collidingKey(subject: Subject, key: Key, random: Random): Key {
  const same = subject.keys.filter(
    (other) =>
      other.tenant === key.tenant && other.text !== key.text && hashOf(subject, other) === hashOf(subject, key),
  )
  return same.length > 0 ? random.pick(same) : key
}

/** The number of a form that brings one of its own; any will do, for the guard ignores it. */
const SENT_NUMBER = 7

/** `INSERT INTO … VALUES …`, without what may follow it. */
export function insertSql(subject: Subject, rows: readonly (readonly [Key, Form])[]): string {
  return `INSERT INTO ${subject.relation} ${columnList(subject)} VALUES ${rows.map((row) => valuesOf(subject, ...row)).join(', ')}`
}

export function columnList({ table }: Subject): string {
  return `(${[...table.scope, 'text', table.hash, table.number, table.chained].map(quote).join(', ')})`
}

function valuesOf(subject: Subject, key: Key, form: Form): string {
  const hash = form === 'slow' || form === 'numbered without hash' ? 'NULL' : hashOf(subject, key)
  const number = { fast: '0', slow: 'DEFAULT', flagged: '0' }[form as string] ?? String(SENT_NUMBER)
  const scope = isScoped(subject) ? [String(key.tenant)] : []
  return `(${[...scope, literal(key.text), hash, number, form === 'flagged' ? 'true' : 'DEFAULT'].join(', ')})`
}

/** The chain of the key, as a condition. */
export function inChain(subject: Subject, key: Key): string {
  const scope = isScoped(subject) ? `tenant = ${key.tenant} AND ` : ''
  return `${scope}${quote(subject.table.hash)} = ${hashOf(subject, key)}`
}

export const isAnchor = ({ table }: Subject): string => `${quote(table.number)} = 0`

/** The columns that a writer fills in who knows nothing of ours. */
export const keyColumns = (subject: Subject): string => (isScoped(subject) ? 'tenant, text' : 'text')

/** The row that holds the key, as a condition. */
export const holdsKey = (subject: Subject, key: Key): string =>
  `${inChain(subject, key)} AND text = ${literal(key.text)}`

/** Any of these keys, as a condition. */
export const holdsAny = (subject: Subject, keys: readonly Key[]): string =>
  keys.map((key) => `(${holdsKey(subject, key)})`).join(' OR ')

/** Assigns the key to a row that has another; the scope too, where there is one. */
export const assign = (subject: Subject, { text, tenant }: Key): string =>
  `text = ${literal(text)}${isScoped(subject) ? `, tenant = ${tenant}` : ''}`
