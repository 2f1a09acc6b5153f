import type { ObjectLiteral } from 'typeorm'
import { guardedAs } from '../adopt/guarded'
import { groupBy } from '../calls/batches'
import { TextRejectedError } from '../errors'
import { normalizedValues } from '../registry/declarations'
import type { ColumnMetadata, Declaration } from '../registry/registry'
import { findDrift } from '../schema/readiness'
import { field, hashAsText, hashOfTexts } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import {
  type DoctorFinding,
  type DoctorKey,
  findingOf,
  FindingTally,
  Groups,
  missingColumns,
  ofPart,
  type Place,
  qualifiedTable,
  type Result,
  countedRows,
  SHOWN_KEYS,
  type Subject,
  toKey,
  typed,
} from './findings'
import { identityOf, printOf, Prints } from './prints'
import { type ChainKey, type Key, keyOfResult, numberedColumns, type PageParts, readChains } from './sql'

/** Examines every row of a unique text. */
export class TextLook {
  /** The counts. `collisions` are chains of more than one text. */
  readonly figures = { rows: 0, nulls: 0, collisions: 0, longestChain: 0 }
  readonly #tally = new FindingTally()
  readonly #twice: Groups
  readonly #twiceNormalized: Groups
  readonly #parts: PageParts
  /** Whether the hidden columns exist. */
  readonly #hidden: boolean
  readonly #seen = new Set<string>()
  readonly #collided: Key[] = []

  constructor(
    private readonly subject: Subject,
    private readonly declaration: Declaration,
    private readonly place: Place,
  ) {
    const { table } = declaration
    this.#twice = new Groups(subject)
    this.#twiceNormalized = new Groups(subject)
    const hidden = [table.hash, table.number, table.chained]
    // The hidden columns of another declaration prove nothing about this one.
    const isOthers = guardedAs({ declaration, state: subject.state }) === 'other'
    this.#hidden = !isOthers && missingColumns(subject.state, hidden).length === 0
    const [texts, deleted] = [table.text.map(({ name }) => name), table.deleted === undefined ? [] : [table.deleted]]
    this.#parts = {
      table: subject.table,
      columns: [...table.scope, ...texts, ...deleted, ...(this.#hidden ? hidden : [])],
      texts,
      select: {
        ...numberedColumns('s', table.scope),
        ...numberedColumns('t', texts),
        ...Object.fromEntries(deleted.map((name) => ['d', `(${field('t', name)} IS NOT NULL)::pg_catalog.text`])),
        ...(this.#hidden && { h: hashAsText(table, 't'), n: `${field('t', table.number)}::pg_catalog.text` }),
      },
    }
  }

  async findings(): Promise<readonly DoctorFinding[]> {
    const byText = new Prints((result) => printOfText(this.#stored(result)))
    // Without the index, two rows of a chain may have the same number, even both 0.
    const drift = findDrift(this.declaration.table, this.subject.state)
    const byPlace =
      this.#hidden && drift.some(({ object }) => object === 'index')
        ? new Prints((result) => printOfPlace(this.#stored(result)))
        : undefined
    for await (const page of this.subject.reader.pages(this.#parts)) {
      const rows = page.results.map((result) => this.#stored(result))
      for (const row of rows) this.#count(row)
      byText.add(page, rows.map(printOfText))
      byPlace?.add(page, rows.map(printOfPlace))
      this.subject.onRows(this.declaration.name, this.figures.rows)
    }
    await this.#lookAgain(byText, true)
    if (byPlace) await this.#lookAgain(byPlace, false)
    return await this.#conclude()
  }

  /** @param result a row with the scope as `s0`, …, the texts as `t0`, …, hash `h`, number `n` and deletion `d` */
  #stored(result: Result): StoredText {
    const { declaration } = this
    const column = (prefix: string) => (_: unknown, index: number) => result[`${prefix}${index}`] ?? null
    const scope = declaration.table.scope.map(column('s'))
    const texts = declaration.table.text.map(column('t'))
    const number = result['n']
    return {
      key: keyOfResult(this.subject.table, result),
      scope,
      texts,
      normalized: normalizeRow(declaration, texts, scope),
      hash: result['h'],
      number: typeof number === 'string' ? Number(number) : number,
      freed: result['d'] === 'true',
    }
  }

  /** Counts the findings of one row. The snapshot of its page is enough for these. */
  #count(row: StoredText): void {
    const { normalized, texts, scope } = row
    const key = toKey(this.subject, row.key)
    this.figures.rows++
    if (isTextless(row)) this.figures.nulls++
    this.#countHash(row, key)
    if (typeof normalized === 'string') this.#tally.add('text.rejected', [key], normalized)
    else if ([...texts, ...scope].some((stored, index) => stored !== normalized[index]))
      this.#tally.add('text.unnormalized', [key])
  }

  #countHash(row: StoredText, key: DoctorKey): void {
    const { table } = this.declaration
    // Some or all of several columns may be NULL. Only a nullable declaration has no hash if all are.
    const hashless = isTextless(row) && (table.nullable || table.text.length === 1)
    if (hashless && !table.nullable) this.#tally.add('text.null', [key])
    const wrong = row.hash !== undefined && row.hash !== (hashless ? null : hashOfTexts(table, row.texts))
    if (wrong) this.#tally.add(row.hash === null ? 'hash.missing' : 'hash.wrong', [key])
    if (row.number === null || (row.number ?? 0) < 0) this.#tally.add('chain.number', [key])
  }

  async #lookAgain(prints: Prints, atTexts: boolean): Promise<void> {
    const look = async (results: readonly Result[]): Promise<void> => await this.#look(results, atTexts)
    await prints.lookAgain(this.subject.reader, this.#parts, look, async () => {
      await this.#twice.countReferences(false)
      await this.#twiceNormalized.countReferences(false)
    })
  }

  /** Examines rows of one snapshot together. */
  async #look(results: readonly Result[], atTexts: boolean): Promise<void> {
    const rows = results.map((result) => this.#stored(result)).filter(isInChain)
    if (atTexts) {
      const identified = rows.map((row) => ({ ...identitiesOf(row), key: row.key, texts: row.texts }))
      for (const [id, same] of groupBy(identified, ({ stored }) => stored))
        if (same.length > 1) this.#twice.add(id, keysOf(same))
      // These texts become equal only when they are normalized.
      for (const [id, same] of groupBy(identified, ({ normalized }) => normalized))
        if (new Set(same.map(({ stored }) => stored)).size > 1) {
          this.#twiceNormalized.add(id, keysOf(same))
          this.subject.onEqual?.(
            this.declaration.name,
            same.map(({ texts }) => texts),
          )
        }
    }
    const chains = rows.flatMap(({ scope, hash }): ChainKey[] =>
      typeof hash === 'string' ? [{ scope: scope.map(String), hash }] : [],
    )
    const fresh = [...groupBy(chains, (chain) => JSON.stringify(chain))].filter(([id]) => !this.#seen.has(id))
    for (const [id] of fresh) this.#seen.add(id)
    if (fresh.length > 0) await this.#lookAtChains(fresh.flatMap(([, same]) => same.slice(0, 1)))
  }

  async #lookAtChains(chains: readonly ChainKey[]): Promise<void> {
    const { subject } = this
    const { table } = this.declaration
    const scope = typed(subject.state, table.scope)
    for (const found of await subject.reader.rows(readChains(subject.table, table, scope, chains))) {
      const [rows, texts] = [Number(found['rows']), Number(found['texts'])]
      const key = JSON.parse(found['key'] ?? '[]') as string[]
      const codes = [
        found['flagged'] === null && ('chain.anchorless' as const),
        found['flagged'] === 'false' && rows > 1 && ('chain.unflagged' as const),
        Number(found['numbers']) < rows && ('chain.number' as const),
      ]
      for (const code of codes) if (code) this.#tally.add(code, [toKey(subject, key)])
      this.figures.longestChain = Math.max(this.figures.longestChain, rows)
      if (texts < 2) continue
      this.figures.collisions++
      if (this.#collided.length < SHOWN_KEYS) this.#collided.push(key)
    }
  }

  async #conclude(): Promise<readonly DoctorFinding[]> {
    const { rows, nulls, collisions } = this.figures
    if (rows > nulls) this.figures.longestChain = Math.max(this.figures.longestChain, 1)
    const groups: DoctorFinding[] = []
    for (const [code, found] of [
      ['text.twice', this.#twice],
      ['text.twiceNormalized', this.#twiceNormalized],
    ] as const) {
      await found.countReferences(true)
      groups.push(...found.findings(code, this.place))
    }
    const collided = this.#collided.map((key) => toKey(this.subject, key))
    const information =
      collisions === 0 ? [] : [findingOf('chain.collision', this.place, { count: collisions, keys: collided })]
    const findings = [...groups, ...this.#tally.findings(this.place), ...information]
    // `adopt` handles only the entity's own table, and refuses a partitioned one.
    const { metadata, surroundings, table } = this.subject
    const isPart = surroundings.partitioned || table.rows !== countedRows(qualifiedTable(metadata), surroundings)
    return isPart ? findings.map(ofPart) : findings
  }
}

type Texts = readonly (string | null)[]

/** A stored row. */
interface StoredText {
  readonly key: Key
  readonly scope: Texts
  readonly texts: Texts
  /** undefined if the column does not exist. */
  readonly hash: string | null | undefined
  readonly number: number | null | undefined
  /** Whether the row is soft-deleted, which frees its text. */
  readonly freed: boolean
  /** The normalized texts and scope, or the reason why they are refused. */
  readonly normalized: Texts | string
}

const isTextless = ({ texts }: StoredText): boolean => texts.every((text) => text === null)

/** Whether a row is in a chain. Freed rows and rows without a text are not. */
const isInChain = (row: StoredText): boolean => !row.freed && !isTextless(row)

/** The print is negative if the row must be examined even if it is alone, because its chain may have no anchor. */
function printOfText(row: StoredText): number {
  const print = printOf(isInChain(row) ? identitiesOf(row).normalized : undefined)
  return (row.number ?? 0) === 0 ? print : -print
}

const keysOf = (rows: readonly Pick<StoredText, 'key'>[]): Key[] => rows.map(({ key }) => key)

function identitiesOf({ texts, scope, normalized }: StoredText): {
  readonly stored: string
  readonly normalized: string
} {
  const stored = identityOf(texts, scope)
  if (typeof normalized === 'string') return { stored, normalized: stored }
  return { stored, normalized: identityOf(normalized.slice(0, texts.length), normalized.slice(texts.length)) }
}

/** The print that rows with the same place in the same chain share. */
const printOfPlace = ({ freed, scope, hash, number }: StoredText): number =>
  printOf(freed || typeof hash !== 'string' ? undefined : identityOf(scope, hash, number))

/** Returns texts and scope in the form in which a new write would store them, or the reason why they are refused. */
function normalizeRow(declaration: Declaration, texts: Texts, scope: Texts): Texts | string {
  const { text, name, normalizeValues } = declaration
  try {
    const ownWay = text.map(({ normalizer }, index) => {
      const stored = texts[index] ?? null
      return stored === null ? null : normalizeText(normalizer, name, stored)
    })
    if (!normalizeValues) return [...ownWay, ...scope]
    const columns = [...text.map(({ column }) => column), ...declaration.scope]
    const given = Object.fromEntries(
      columns.map((column, index) => [
        column.propertyName,
        propertyValue(column, [...ownWay, ...scope][index] ?? null),
      ]),
    )
    const set = normalizedValues(declaration, given) as ObjectLiteral
    return columns.map(({ propertyName }) => {
      const value: unknown = Object.hasOwn(set, propertyName) ? set[propertyName] : given[propertyName]
      return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean'
        ? String(value)
        : ((value ?? null) as string | null)
    })
  } catch (error) {
    return rejectionOf(error)
  }
}

/** Returns why a normalizer refuses a text. */
export const rejectionOf = (error: unknown): string =>
  error instanceof TextRejectedError ? error.reason : 'its normalizer threw an error'

const NUMBER_TYPES: ReadonlySet<unknown> = new Set([Number, 'int', 'int2', 'int4', 'integer', 'smallint'])

/** Returns the value of an entity for a stored value. */
function propertyValue({ type, transformer }: ColumnMetadata, stored: string | null): unknown {
  const value = stored !== null && NUMBER_TYPES.has(type) ? Number(stored) : stored
  return [transformer ?? []].flat().reduceRight((one: unknown, each) => each.from(one) as unknown, value)
}

/** The columns to read for a unique text, without the hidden ones. */
export const examinedColumns = ({ table }: Declaration): string[] => [
  ...table.scope,
  ...table.text.map(({ name }) => name),
  ...(table.deleted === undefined ? [] : [table.deleted]),
]
