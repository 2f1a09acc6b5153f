import type { ObjectLiteral } from 'typeorm'
import { TextRejectedError } from '../errors'
import {
  type ChainKey,
  hashAsText,
  type Key,
  keyOfResult,
  numbered,
  type PageParts,
  readChains,
} from '../sql/doctor-rows'
import { composedText, field } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { findDrift } from '../typeorm/drift'
import { normalizedValues } from '../typeorm/normalized-values'
import type { ColumnMetadata, Declaration } from '../typeorm/registry'
import { type DoctorFinding, findingOf, type Place, SHOWN_KEYS, Tally } from './findings'
import { identityOf, looksOf, NO_PRINT, printOf, Prints } from './prints'
import type { Result } from './reader'
import { Groups, missingColumns, type Subject, toKey, typed } from './subject'

/** What was counted of a unique text. */
export interface TextFigures {
  readonly rows: number
  /** Rows without a text. */
  readonly nulls: number
  /** Chains of more than one text. */
  readonly collisions: number
  /** Rows of the longest chain. */
  readonly longestChain: number
}

type Texts = readonly (string | null)[]

/** A row as it is stored. */
interface StoredText {
  readonly key: Key
  readonly scope: Texts
  readonly texts: Texts
  /** undefined: the column is not there. */
  readonly hash: string | null | undefined
  readonly number: number | null | undefined
  /** It is deleted softly, and that frees its text. */
  readonly freed: boolean
  /** Texts and scope as they should be stored, or why they are refused. */
  readonly normalized: Texts | string
}

/** Looks at every row that has a unique text. */
export class TextLook {
  readonly #tally = new Tally()
  readonly #twice: Groups
  readonly #twiceNormalized: Groups
  readonly #parts: PageParts
  /** The hidden columns are there. */
  readonly #hidden: boolean
  readonly #seen = new Set<string>()
  readonly #figures = { rows: 0, nulls: 0, collisions: 0, longestChain: 0 }
  readonly #collided: Key[] = []

  constructor(
    private readonly subject: Subject,
    private readonly declaration: Declaration,
    private readonly place: Place,
  ) {
    const { table } = declaration
    this.#twice = new Groups(subject, SHOWN_KEYS)
    this.#twiceNormalized = new Groups(subject, SHOWN_KEYS)
    const hidden = [table.hash, table.number, table.chained]
    this.#hidden = missingColumns(subject.state, hidden).length === 0
    const [texts, deleted] = [table.text.map(({ name }) => name), table.deleted === undefined ? [] : [table.deleted]]
    this.#parts = {
      table: subject.table,
      columns: [...table.scope, ...texts, ...deleted, ...(this.#hidden ? hidden : [])],
      texts,
      select: {
        ...numbered('s', table.scope),
        ...numbered('t', texts),
        ...Object.fromEntries(deleted.map((name) => ['d', `(${field('t', name)} IS NOT NULL)::pg_catalog.text`])),
        ...(this.#hidden && { h: hashAsText(table, 't'), n: `${field('t', table.number)}::pg_catalog.text` }),
      },
    }
  }

  get figures(): TextFigures {
    return this.#figures
  }

  async findings(): Promise<readonly DoctorFinding[]> {
    const byText = new Prints((result) => printOfText(this.#stored(result)))
    // Without the index two rows of a chain may have one number, and both 0.
    const byPlace = this.#indexStands() ? undefined : new Prints((result) => placeOf(this.#stored(result)))
    for await (const page of this.subject.reader.pages(this.#parts)) {
      const rows = page.results.map((result) => this.#stored(result))
      for (const row of rows) this.#count(row)
      byText.add(
        page,
        rows.map((row) => printOfText(row)),
      )
      byPlace?.add(page, rows.map(placeOf))
      this.subject.onRows(this.declaration.name, this.#figures.rows)
    }
    await this.#lookAgain(byText, true)
    if (byPlace) await this.#lookAgain(byPlace, false)
    return await this.#conclude()
  }

  #indexStands(): boolean {
    const drift = findDrift(this.declaration.table, this.subject.state)
    return !this.#hidden || drift.every(({ object }) => object !== 'index')
  }

  #stored(result: Result): StoredText {
    const { scope, text } = this.declaration.table
    const number = result['n']
    const scopeValues = scope.map((_, index) => result[`s${index}`] ?? null)
    const texts = text.map((_, index) => result[`t${index}`] ?? null)
    return {
      key: keyOfResult(this.subject.table, result),
      scope: scopeValues,
      texts,
      normalized: tryToNormalize(this.declaration, texts, scopeValues),
      hash: result['h'],
      number: typeof number === 'string' ? Number(number) : number,
      freed: result['d'] === 'true',
    }
  }

  /** What one row alone says: a snapshot of its page is enough. */
  #count(row: StoredText): void {
    const { table } = this.declaration
    const add = (code: Parameters<Tally['add']>[0], detail?: string): void => {
      this.#tally.add(code, [toKey(this.subject, row.key)], detail)
    }
    this.#figures.rows++
    const textless = isTextless(row)
    if (textless) this.#figures.nulls++
    if (textless && table.text.length === 1 && !table.nullable) add('text.null')
    const hash =
      textless && (table.nullable || table.text.length === 1) ? null : table.digest.js(composedText(table, row.texts))
    if (row.hash === null && hash !== null) add('hash.missing')
    else if (row.hash !== undefined && row.hash !== hash) add('hash.wrong')
    if (row.number === null || (row.number ?? 0) < 0) add('chain.number')
    const { normalized } = row
    if (typeof normalized === 'string') add('text.refused', normalized)
    else if (!isSame(normalized, [...row.texts, ...row.scope])) add('text.unnormalized')
  }

  async #lookAgain(prints: Prints, atTexts: boolean): Promise<void> {
    for await (const groups of prints.groups(this.subject.reader, this.#parts)) {
      for (const keys of looksOf(groups)) {
        await this.subject.reader.snapshot(async () => await this.#look(keys, atTexts))
        await this.#twice.countReferences(false)
        await this.#twiceNormalized.countReferences(false)
      }
    }
  }

  /** What several rows say together, in one snapshot. */
  async #look(among: readonly Key[], atTexts: boolean): Promise<void> {
    const alike = new Alike()
    const chains = new Map<string, ChainKey>()
    for await (const { results } of this.subject.reader.pages(this.#parts, { among })) {
      for (const row of results.map((result) => this.#stored(result)).filter(holdsText)) {
        alike.add(row)
        const chain = { scope: row.scope.map(String), hash: row.hash ?? '' }
        if (typeof row.hash === 'string') chains.set(JSON.stringify(chain), chain)
      }
    }
    if (atTexts) alike.tell(this.#twice, this.#twiceNormalized)
    const fresh = [...chains].filter(([id]) => !this.#seen.has(id))
    for (const [id] of fresh) this.#seen.add(id)
    if (fresh.length > 0) await this.#lookAtChains(fresh.map(([, chain]) => chain))
  }

  async #lookAtChains(chains: readonly ChainKey[]): Promise<void> {
    const { subject } = this
    const { table } = this.declaration
    const parts = { table: subject.table, text: table, scope: typed(subject.state, table.scope) }
    for (const found of await subject.reader.rows(readChains(parts, chains))) {
      const [rows, texts] = [Number(found['rows']), Number(found['texts'])]
      const key = JSON.parse(found['key'] ?? '[]') as string[]
      const codes = [
        found['flagged'] === null && ('chain.anchorless' as const),
        found['flagged'] === 'false' && rows > 1 && ('chain.unflagged' as const),
        Number(found['numbers']) < rows && ('chain.number' as const),
      ]
      for (const code of codes) if (code) this.#tally.add(code, [toKey(subject, key)])
      this.#figures.longestChain = Math.max(this.#figures.longestChain, rows)
      if (texts < 2) continue
      this.#figures.collisions++
      if (this.#collided.length < SHOWN_KEYS) this.#collided.push(key)
    }
  }

  async #conclude(): Promise<readonly DoctorFinding[]> {
    const { rows, nulls, collisions } = this.#figures
    if (rows > nulls) this.#figures.longestChain = Math.max(this.#figures.longestChain, 1)
    const groups: DoctorFinding[] = []
    for (const [code, found] of [
      ['text.twice', this.#twice],
      ['text.twiceNormalized', this.#twiceNormalized],
    ] as const) {
      if (found.groups === 0) continue
      await found.countReferences(true)
      const keys = found.keys.map((key) => toKey(this.subject, key))
      groups.push(findingOf(code, this.place, { count: found.surplus, keys, groups: found.report() }))
    }
    const collided = this.#collided.map((key) => toKey(this.subject, key))
    const information =
      collisions === 0 ? [] : [findingOf('chain.collision', this.place, { count: collisions, keys: collided })]
    return [...groups, ...this.#tally.findings(this.place), ...information]
  }
}

const isTextless = ({ texts }: Pick<StoredText, 'texts'>): boolean => texts.every((text) => text === null)

/** Rows that are deleted softly, or have no text, are in no chain. */
const holdsText = (row: StoredText): boolean => !row.freed && !isTextless(row)

/** Negative where the row is to be looked at though it is alone: its chain may have no anchor. */
function printOfText(row: StoredText): number {
  if (!holdsText(row)) return NO_PRINT
  const print = printOf(identitiesOf(row).normalized)
  return (row.number ?? 0) === 0 ? print : -print
}

/** Rows of one snapshot by their texts. */
class Alike {
  readonly #stored = new Map<string, Key[]>()
  readonly #normalized = new Map<string, { readonly keys: Key[]; readonly stored: Set<string> }>()

  add(row: StoredText): void {
    const { stored, normalized } = identitiesOf(row)
    const keys = this.#stored.get(stored) ?? []
    this.#stored.set(stored, keys)
    keys.push(row.key)
    const group = this.#normalized.get(normalized) ?? { keys: [], stored: new Set() }
    this.#normalized.set(normalized, group)
    group.keys.push(row.key)
    group.stored.add(stored)
  }

  /** @param later texts that are one only when they are normalized */
  tell(twice: Groups, later: Groups): void {
    for (const [identity, keys] of this.#stored) if (keys.length > 1) twice.add(identity, keys)
    for (const [identity, { keys, stored }] of this.#normalized) if (stored.size > 1) later.add(identity, keys)
  }
}

function identitiesOf({ texts, scope, normalized }: StoredText): {
  readonly stored: string
  readonly normalized: string
} {
  const stored = identityOf(texts, scope)
  if (typeof normalized === 'string') return { stored, normalized: stored }
  return { stored, normalized: identityOf(normalized.slice(0, texts.length), normalized.slice(texts.length)) }
}

const placeOf = ({ freed, scope, hash, number }: StoredText): number =>
  freed || typeof hash !== 'string' ? NO_PRINT : printOf(identityOf(scope, hash, number))

const isSame = (one: Texts, other: Texts): boolean => one.every((text, index) => text === other[index])

function tryToNormalize(declaration: Declaration, texts: Texts, scope: Texts): Texts | string {
  try {
    return normalizeRow(declaration, texts, scope)
  } catch (error) {
    return error instanceof TextRejectedError ? error.reason : 'its normalizer threw an error'
  }
}

/**
 * Texts and scope as they would be stored if they were written again.
 *
 * @throws TextRejectedError, and what the option `normalizeValues` throws
 */
function normalizeRow(declaration: Declaration, texts: Texts, scope: Texts): Texts {
  const { text, name, normalizeValues } = declaration
  const ownWay = text.map(({ normalizer }, index) => {
    const stored = texts[index] ?? null
    return stored === null ? null : normalizeText(normalizer, name, stored)
  })
  if (!normalizeValues) return [...ownWay, ...scope]
  const columns = [...text.map(({ column }) => column), ...declaration.scope]
  const given = Object.fromEntries(
    columns.map((column, index) => [column.propertyName, propertyValue(column, [...ownWay, ...scope][index] ?? null)]),
  )
  const set = normalizedValues(declaration, given) as ObjectLiteral
  return columns.map(({ propertyName }) => {
    const value: unknown = Object.hasOwn(set, propertyName) ? set[propertyName] : given[propertyName]
    return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean'
      ? String(value)
      : ((value ?? null) as string | null)
  })
}

const INTEGERS: ReadonlySet<unknown> = new Set([Number, 'int', 'int2', 'int4', 'integer', 'smallint'])

/** The value that an entity has for what is stored. */
function propertyValue({ type, transformer }: ColumnMetadata, stored: string | null): unknown {
  const value = stored !== null && INTEGERS.has(type) ? Number(stored) : stored
  return [transformer ?? []].flat().reduceRight((one: unknown, { from }) => from(one) as unknown, value)
}

/** The columns that are read of a unique text, without the hidden ones. */
export const columnsOf = ({ table }: Declaration): string[] => [
  ...table.scope,
  ...table.text.map(({ name }) => name),
  ...(table.deleted === undefined ? [] : [table.deleted]),
]
