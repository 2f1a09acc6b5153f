import { guardedAs } from '../adopt/renormalize'
import { type ChainKey, type Key, keyOfResult, numbered, type PageParts, readChains } from '../sql/doctor-rows'
import { field, hashAsText } from '../sql/text-table'
import { findDrift } from '../schema/drift'
import type { Declaration } from '../registry/registry'
import { type DoctorFinding, findingOf, FindingTally, ofPart, type Place, SHOWN_KEYS } from './findings'
import {
  Alike,
  faultsOf,
  isInChain,
  isNormalized,
  isTextless,
  looksOf,
  printOfPlace,
  printOfText,
  Prints,
  type StoredText,
  storedText,
} from './stored-text'
import { Groups, missingColumns, relationOf, type Result, rowsOf, type Subject, toKey, typed } from './subject'

/** What was counted of a unique text. */
interface TextFigures {
  readonly rows: number
  /** Rows without a text. */
  readonly nulls: number
  /** Chains of more than one text. */
  readonly collisions: number
  /** Rows of the longest chain. */
  readonly longestChain: number
}

/** Looks at every row that has a unique text. */
export class TextLook {
  readonly #tally = new FindingTally()
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
    // Those of another declaration say nothing of this one.
    const isOthers = guardedAs({ declaration, state: subject.state }) === 'other'
    this.#hidden = !isOthers && missingColumns(subject.state, hidden).length === 0
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
    const byPlace = this.#indexStands() ? undefined : new Prints((result) => printOfPlace(this.#stored(result)))
    for await (const page of this.subject.reader.pages(this.#parts)) {
      const rows = page.results.map((result) => this.#stored(result))
      for (const row of rows) this.#count(row)
      byText.add(
        page,
        rows.map((row) => printOfText(row)),
      )
      byPlace?.add(page, rows.map(printOfPlace))
      this.subject.onRows(this.declaration.name, this.#figures.rows)
    }
    await this.#lookAgain(byText, true)
    if (byPlace) await this.#lookAgain(byPlace, false)
    return await this.#conclude()
  }

  /** `adopt` knows the entity's own table, and refuses that where it is partitioned. */
  #isPart(): boolean {
    const { metadata, surroundings, table } = this.subject
    return surroundings.partitioned || table.rows !== rowsOf(relationOf(metadata), surroundings)
  }

  #indexStands(): boolean {
    const drift = findDrift(this.declaration.table, this.subject.state)
    return !this.#hidden || drift.every(({ object }) => object !== 'index')
  }

  #stored(result: Result): StoredText {
    return storedText(this.declaration, keyOfResult(this.subject.table, result), result)
  }

  /** What concerns one row alone: a snapshot of its page is enough. */
  #count(row: StoredText): void {
    this.#figures.rows++
    if (isTextless(row)) this.#figures.nulls++
    const { normalized } = row
    const key = toKey(this.subject, row.key)
    for (const code of faultsOf(this.declaration, row)) this.#tally.add(code, [key])
    if (typeof normalized === 'string') this.#tally.add('text.refused', [key], normalized)
    else if (!isNormalized(row)) this.#tally.add('text.unnormalized', [key])
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

  /** What concerns several rows together, in one snapshot. */
  async #look(among: readonly Key[], atTexts: boolean): Promise<void> {
    const alike = new Alike()
    const chains = new Map<string, ChainKey>()
    for await (const { results } of this.subject.reader.pages(this.#parts, { among })) {
      for (const row of results.map((result) => this.#stored(result)).filter(isInChain)) {
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
    const findings = [...groups, ...this.#tally.findings(this.place), ...information]
    return this.#isPart() ? findings.map(ofPart) : findings
  }
}
