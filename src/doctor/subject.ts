import type { EntityMetadata, QueryRunner } from 'typeorm'
import type { Query, TableState } from '../sql/catalog'
import type { Surroundings } from '../sql/doctor-catalog'
import {
  type Bound,
  countReferences,
  type Key,
  keyOfResult,
  page,
  type PageBounds,
  type PageParts,
  type ReadTable,
  SNAPSHOT,
  type TypedColumn,
} from '../sql/doctor-rows'
import { qualified } from '../sql/identifier'
import type { ColumnMetadata } from '../registry/registry'
import { foreignSchema } from '../registry/resolve-declaration'
import type { DoctorGroups, DoctorKey } from './findings'

/** A row as a statement gives it: every value is of type text. */
export type Result = Readonly<Record<string, string | null>>

/** Rows that one statement gave. */
export interface Page {
  readonly results: readonly Result[]
  /** The key that the page begins after, and that of its last row. */
  readonly after: Key | undefined
  readonly upTo: Key
}

/** Reads by one connection, and only reads. */
export class Reader {
  constructor(
    private readonly queryRunner: QueryRunner,
    readonly batchRows: number,
    private readonly signal: AbortSignal | undefined,
  ) {}

  readonly query: Query = async (sql, values) => {
    this.signal?.throwIfAborted()
    return (await this.queryRunner.query(sql, values)) as readonly unknown[]
  }

  async rows({ sql, values }: Bound): Promise<readonly Result[]> {
    return (await this.query(sql, values)) as readonly Result[]
  }

  /** Reads page after page, each in a snapshot of its own. */
  async *pages(parts: PageParts, bounds: Omit<PageBounds, 'limit'> = {}): AsyncGenerator<Page, void, undefined> {
    for (let { after } = bounds; ;) {
      const results = await this.rows(page(parts, { ...bounds, after, limit: this.batchRows }))
      const last = results.at(-1)
      if (!last) return
      const upTo = keyOfResult(parts.table, last)
      yield { results, after, upTo }
      after = upTo
    }
  }

  /** Looks at several things as they are at one moment. */
  async snapshot<T>(look: () => Promise<T>): Promise<T> {
    await this.query(SNAPSHOT.begin)
    let seen: T
    try {
      seen = await look()
    } catch (error) {
      // On a lost connection this fails too, but it must not hide the cause.
      await this.queryRunner.query(SNAPSHOT.rollBack).catch(() => undefined)
      throw error
    }
    await this.queryRunner.query(SNAPSHOT.commit)
    return seen
  }
}

/** A table whose rows are looked at, with what the catalog says of it. */
export interface Subject {
  readonly metadata: EntityMetadata
  readonly table: ReadTable
  readonly state: TableState
  readonly surroundings: Surroundings
  readonly reader: Reader
  readonly onRows: (property: string, rows: number) => void
}

export const relationOf = (metadata: EntityMetadata): string => qualified(foreignSchema(metadata), metadata.tableName)

/** The rows of a table, as SQL. */
export const rowsOf = (relation: string, { partitioned }: Surroundings): string =>
  partitioned ? relation : `ONLY ${relation}`

/** Columns that the table lacks. */
export const missingColumns = ({ columns }: TableState, names: readonly string[]): readonly string[] =>
  names.filter((name) => columns.every((column) => column.name !== name))

/** Columns with their types. */
export const typed = ({ columns }: TableState, names: readonly string[]): readonly TypedColumn[] =>
  names.map((name) => columns.find((column) => column.name === name) ?? { name, type: 'text', declared: 'text' })

const WHOLE: ReadonlySet<string> = new Set(['smallint', 'integer', 'bigint'])

/** The key of a row by its properties. */
export function toKey({ metadata, table }: Subject, key: Key): DoctorKey {
  return Object.fromEntries(
    metadata.primaryColumns.map(({ propertyPath }, index) => {
      const value = key[index] ?? ''
      const isNumber = WHOLE.has(table.key[index]?.type ?? '') && Number.isSafeInteger(Number(value))
      return [propertyPath, isNumber ? Number(value) : value]
    }),
  )
}

export const columnNames = (columns: readonly ColumnMetadata[]): string[] =>
  columns.map(({ databaseName }) => databaseName)

/** Rows whose references are counted by one statement. */
const COUNTED_KEYS = 5_000

/** Groups of rows that should be one. */
export class Groups {
  groups = 0
  surplus = 0
  largest = 0
  readonly keys: Key[] = []
  readonly #references = new Map<
    string,
    { readonly table: string; readonly columns: readonly string[]; rows: number; readonly indexed: boolean }
  >()
  #uncounted: Key[] = []
  #last: { readonly identity: string; rows: number } | undefined

  constructor(
    private readonly subject: Subject,
    private readonly shown: number,
  ) {}

  /** @param keys of the group; where it is divided, its first row comes with each part */
  add(identity: string, keys: readonly Key[]): void {
    const [first, ...others] = keys
    if (!first) return
    const goesOn = this.#last?.identity === identity
    this.#last = { identity, rows: others.length + (goesOn ? (this.#last?.rows ?? 1) : 1) }
    if (!goesOn) this.groups++
    this.surplus += others.length
    this.largest = Math.max(this.largest, this.#last.rows)
    this.keys.push(...(goesOn ? others : keys).slice(0, this.shown - this.keys.length))
    this.#uncounted.push(...others)
  }

  /** Asks the tables that refer to these rows, when there are many, or at the end. */
  async countReferences(atEnd: boolean): Promise<void> {
    const { reader, table, surroundings } = this.subject
    while (this.#uncounted.length >= (atEnd ? 1 : COUNTED_KEYS)) {
      const keys = this.#uncounted.splice(0, COUNTED_KEYS)
      for (const referrer of surroundings.referrers) {
        const [found] = await reader.rows(countReferences(table, referrer, keys))
        const id = JSON.stringify(referrer)
        const { table: from, columns, indexed } = referrer
        const known = this.#references.get(id) ?? { table: from, columns, rows: 0, indexed }
        this.#references.set(id, known)
        known.rows += Number(found?.['rows'])
      }
    }
  }

  report(): DoctorGroups {
    const references = [...this.#references.values()].filter(({ rows }) => rows > 0)
    return { groups: this.groups, largest: this.largest, references }
  }
}
