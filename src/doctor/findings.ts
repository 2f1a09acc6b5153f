import type { EntityMetadata, QueryRunner } from 'typeorm'
import type { Finding } from '../errors'
import { writtenSchema } from '../registry/declarations'
import type { ColumnMetadata } from '../registry/registry'
import type { Query, TableState } from '../sql/catalog'
import { qualified } from '../sql/identifier'
import { endsConnection, serverError, SQLSTATE } from '../sql/sqlstate'
import {
  type Bound,
  countReferences,
  type Key,
  keyOfResult,
  page,
  type PageBounds,
  type PageParts,
  type ReadTable,
  type Surroundings,
  type TypedColumn,
} from './sql'

/**
 * `error`: something is wrong or must be done. `warning`: a condition affects a change of the table. `information`:
 * nothing to do.
 */
export type DoctorSeverity = 'error' | 'warning' | 'information'

/** The severity and the next step of each kind of finding. */
export const CODES = {
  'text.twice': [
    'error',
    'Make one row of each group (typeorm-unique-text adopt --merge oldest --list merge.jsonl, docs/adopting.md), or change their texts. Then find out what let them in: see the findings about guard, index and triggers.',
  ],
  'text.twiceNormalized': [
    'error',
    'These texts become equal when they are normalized. If the guard is missing, typeorm-unique-text adopt --merge oldest --list merge.jsonl makes one row of each group. Where one stands, do the same after typeorm-unique-text abandon, or merge the rows by hand (docs/adopting.md).',
  ],
  'text.unnormalized': [
    'error',
    'Run typeorm-unique-text adopt, which normalizes texts. Names are normalized by the lines in docs/changing-a-declaration.md.',
  ],
  'text.rejected': ['error', 'Correct these texts, or delete their rows: the normalizer refuses them.'],
  'text.unadopted': [
    'error',
    'Run typeorm-unique-text adopt, while the application runs (docs/adopting.md). For a small table migration:generate and migration:run do it too.',
  ],
  'adoption.unfinished': [
    'error',
    'Run typeorm-unique-text adopt again, which goes on where a command ended early, or typeorm-unique-text abandon, which takes away what that has made (docs/adopting.md).',
  ],
  'disk.needed': ['warning', 'See that the disk has room for it.'],
  'text.null': ['error', 'Give these rows a text, or declare the text nullable.'],
  'hash.missing': [
    'error',
    'No operation finds these rows. With the guard on, change their text to another one and back, by two UPDATEs: the guard then makes the hash.',
  ],
  'hash.wrong': [
    'error',
    'With the guard on, change the text of these rows to another one and back, by two UPDATEs: the guard then makes the hash.',
  ],
  'chain.anchorless': [
    'error',
    'Give the named row of each chain the number 0 and the flag, with session_replication_role = replica.',
  ],
  'chain.unflagged': [
    'error',
    'Give the named row of each chain the flag, with session_replication_role = replica. Until then adopt --merge leaves the chain out.',
  ],
  'chain.number': ['error', 'Give the rows of each chain the numbers 0, 1, 2 …, then make the unique index.'],
  'chain.collision': ['information', 'Different texts have the same hash, and all are stored. No action is needed.'],
  'name.missing': [
    'error',
    'Change each of these names to another one and back, by two UPDATEs: the second takes the name, or fails and names the row that has it. Where the data of the whole table of names is lost, follow docs/backup-and-restore.md.',
  ],
  'name.untrue': [
    'error',
    'Where name.missing is found too, follow its advice first, and run the doctor again: these rows may have gone to their holders by then. Delete those that are left from the table of names, in one transaction that first disables the named trigger of that table, and in the end enables it. The other triggers must stay on: they keep chains.',
  ],
  'number.missing': ['error', 'Run migration:generate and migration:run, which number rows that have no number.'],
  'number.twice': ['error', 'Give one row of each group another number, then make the unique index.'],
  'count.wrong': [
    'error',
    'Run the command recount, or recount() of typeorm-unique-text/numbers: it counts the rows of each scope again.',
  ],
  'rows.unreadable': [
    'error',
    'The server refused to show these rows. Give the role the privilege to read them (42501), or correct what other findings name, and run the doctor again.',
  ],
  'guard.replica': [
    'error',
    'No trigger fires in sessions with these settings. Run the named statements as a superuser, and connect again. Then run the doctor again: it finds what was stored meanwhile.',
  ],
  'table.unlogged': [
    'error',
    'After a crash of the server, this table is empty: names are free, and counts and tokens are lost. Run the named statements.',
  ],
  'table.granted': ['error', 'Every role may write to this table of the package. Run the named statements.'],
  'table.rule': [
    'warning',
    'These rules change what is written, and adopt refuses such a table. Decide whether to drop them, or to move their work to a trigger.',
  ],
  'definitions.uncompared': [
    'warning',
    'Conditions of triggers, checks and indexes were not compared. Run the doctor on the primary, by a role with the privilege TEMPORARY on the database.',
  ],
  'rows.hidden': ['warning', 'Row security hides rows from this role. Run the doctor as the owner of the table.'],
  'trigger.user': [
    'warning',
    'These triggers of yours fire for each row that a migration fills. Make sure that they may.',
  ],
  'trigger.text': [
    'warning',
    'These triggers of yours change a text after its hash is made, and the check then refuses the row (23514). Decide where the text is changed: the option normalize does it for all writers of this package.',
  ],
  'index.user': [
    'warning',
    'adopt stops where normalizing makes texts equal that this unique index of yours keeps apart. Correct the rows, or drop it: clients can then store equal texts until the step guard, which --merge merges.',
  ],
  'replication.publication': ['warning', 'Add new columns at the subscribers first: a subscriber without them stops.'],
  'replication.incomplete': [
    'warning',
    'Add these tables to the publication, with all rows and columns: without them the subscriber has other counts, or no names, after fail-over (docs/backup-and-restore.md).',
  ],
  'replication.subscription': [
    'warning',
    'Add new columns here before the publisher has them, or the subscription stops.',
  ],
  'table.spread': [
    'error',
    'Move its rows, for instance by undistribute_table(), or change the declaration (docs/scale.md).',
  ],
  'table.inherits': [
    'warning',
    'Tables that inherit from this one keep rows of their own: their texts are not unique together with these.',
  ],
  'table.partitioned': ['warning', 'A migration locks every partition. The unique index must hold the partition key.'],
  'reference.undeclared': [
    'warning',
    'If these columns refer to the table, add foreign keys, or merging rows leaves them dangling.',
  ],
  'transaction.old': [
    'warning',
    'Locks and concurrent index builds wait for the oldest open transaction. Find out whose it is.',
  ],
} as const

/** A kind of finding with a severity and a next step of its own. */
export type ListedCode = keyof typeof CODES

/** Findings about objects of the database that differ from the declaration. */
type SchemaCode = `${Finding['object']}.${Finding['kind']}`

/** The kind of a finding. New kinds may be added. */
export type DoctorCode = ListedCode | SchemaCode

/** The primary key of a row, by property. Integers that JavaScript holds exactly are numbers, the rest are strings. */
export type DoctorKey = Readonly<Record<string, string | number>>

/** Rows that should be one. */
export interface DoctorGroups {
  /** How many groups. */
  readonly groups: number
  /** Rows of the largest group. */
  readonly largest: number
  /** Rows that refer, by foreign keys, to a surplus row. All rows of a group but the first are surplus. */
  readonly references: readonly {
    /** The table that refers to the rows. */
    readonly table: string
    /** The columns of the foreign key. */
    readonly columns: readonly string[]
    /** How many rows refer to a surplus row. */
    readonly rows: number
    /** false if no index begins with these columns. The server then reads the whole table for every merged row. */
    readonly indexed: boolean
  }[]
}

/** One thing that the doctor found. Never holds a text. */
export interface DoctorFinding {
  /** The kind of the finding. */
  readonly code: DoctorCode
  /** Whether the finding is an error. */
  readonly severity: DoctorSeverity
  /** The name of the entity. */
  readonly entity: string
  /** null if the finding concerns the whole table. */
  readonly property: string | null
  /** The number of rows, or of surplus rows of groups, of chains, of scopes, or of objects. */
  readonly count: number
  /** The keys of the first rows, at most ten. The rows of a group follow each other. */
  readonly keys: readonly DoctorKey[]
  /** The next step, in a sentence or two. */
  readonly next: string
  /** The names of objects, or the reason why texts are refused. */
  readonly detail?: string
  /** The size of the groups, and their references. */
  readonly groups?: DoctorGroups
}

/** The most keys of a finding. */
export const SHOWN_KEYS = 10

/** The next steps for a partitioned table or a part of one. `adopt` refuses both. */
const NEXT_OF_PARTS: Partial<Record<ListedCode, string>> = {
  'text.twice':
    'Turn what refers to these rows to one of each group, and delete the others, or change their texts: adopt takes no partitioned table and no partition. Then find out what let them in: see the findings about guard, index and triggers.',
  'text.twiceNormalized':
    'These texts become equal when they are normalized. Make one row of each group by hand first (docs/changing-a-declaration.md): adopt takes no partitioned table and no partition.',
  'text.unnormalized':
    'Normalize them by the lines of docs/changing-a-declaration.md: adopt takes no partitioned table and no partition.',
}

/** Returns a finding with the next step for a partitioned table or a part of one. */
export const ofPart = (finding: DoctorFinding): DoctorFinding => {
  const next = NEXT_OF_PARTS[finding.code as ListedCode]
  return next === undefined ? finding : { ...finding, next }
}

/** Codes of objects or values that are missing, different or invalid. */
const AWAITS_ADOPTION = /^(?!text\.).+\.(?:missing|different|invalid)$/u

/** Codes of rows that an unfinished adoption corrects. Before it begins and after its guard exists, a person does. */
const MADE_ANEW = /^(?:hash\.wrong|chain\.(?:anchorless|unflagged|number)|count\.wrong)$/u

/** Returns the findings. If a text is not adopted yet, the next step for its missing objects is `adopt` too. */
export function awaitingAdoption(findings: readonly DoctorFinding[]): DoctorFinding[] {
  const unfinished = findings.filter(({ code }) => code === 'adoption.unfinished')
  const unadopted = findings.filter(({ code }) => code === 'text.unadopted')
  const due = [...unfinished, ...unadopted]
  return findings.map((one) => {
    const isMade =
      MADE_ANEW.test(one.code) && [unfinished, unadopted].every((all) => all.some((other) => isSamePlace(one, other)))
    if (!isMade && !AWAITS_ADOPTION.test(one.code)) return one
    const adopt = due.find((other) => isSamePlace(one, other))
    return adopt ? { ...one, next: adopt.next } : one
  })
}

const isSamePlace = (one: Place, other: Place): boolean =>
  one.entity === other.entity && one.property === other.property

/** The entity and the property of a finding. */
export interface Place {
  readonly entity: string
  readonly property: string | null
}

type Found = Pick<DoctorFinding, 'count'> & Partial<Pick<DoctorFinding, 'keys' | 'groups'>>

export function findingOf(
  code: ListedCode,
  place: Place,
  { detail, ...rest }: Found & { readonly detail?: string | undefined },
): DoctorFinding {
  const [severity, next] = CODES[code]
  return { code, severity, ...place, keys: [], next, ...rest, ...(detail !== undefined && { detail }) }
}

/** Returns the finding for an object that differs in the catalog. */
export const schemaFinding = ({ object, kind, name, detail }: Finding, place: Place): DoctorFinding => ({
  code: `${object}.${kind}`,
  severity: 'error',
  ...place,
  count: 1,
  keys: [],
  next: 'Run migration:generate, then migration:run.',
  detail: detail === undefined ? name : `${name}: ${detail}`,
})

/** Counts rows of several codes, and keeps the first keys of each. */
export class FindingTally {
  readonly #found = new Map<
    string,
    { readonly code: ListedCode; readonly detail: string | undefined; count: number; readonly keys: DoctorKey[] }
  >()

  /** @param detail a part that is counted separately, for instance the reason of a refusal */
  add(code: ListedCode, keys: readonly DoctorKey[], detail?: string): void {
    const id = `${code} ${detail ?? ''}`
    const found = this.#found.get(id) ?? { code, detail, count: 0, keys: [] }
    this.#found.set(id, found)
    found.count++
    found.keys.push(...keys.slice(0, SHOWN_KEYS - found.keys.length))
  }

  findings(place: Place): DoctorFinding[] {
    return [...this.#found.values()].map(({ code, detail, count, keys }) =>
      findingOf(code, place, { count, keys, detail }),
    )
  }
}

/** A row that a statement returns. Every value is of type text. */
export type Result = Readonly<Record<string, string | null>>

/** The rows that one statement returned. */
export interface Page {
  readonly results: readonly Result[]
  /** The key before the first row of the page, and the key of its last row. */
  readonly after: Key | undefined
  readonly upTo: Key
}

/** Reads on one connection, and never writes. */
export class Reader {
  constructor(
    private readonly queryRunner: QueryRunner,
    private readonly batchRows: number,
    private readonly signal: AbortSignal | undefined,
  ) {}

  readonly query: Query = async (sql, values) => {
    this.signal?.throwIfAborted()
    return (await this.queryRunner.query(sql, values)) as readonly unknown[]
  }

  /** Sends statements that must be sent together, even if the signal is aborted meanwhile. */
  readonly whole: Query = async (sql, values) => (await this.queryRunner.query(sql, values)) as readonly unknown[]

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

  /** Does several reads in one snapshot. */
  async snapshot(look: () => Promise<void>): Promise<void> {
    await this.query('START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY')
    try {
      await look()
    } catch (error) {
      // On a lost connection, this fails too, but it must not hide the cause.
      await this.queryRunner.query('ROLLBACK').catch(() => undefined)
      throw error
    }
    await this.queryRunner.query('COMMIT')
  }
}

/**
 * Returns what a look at rows finds. If the server refuses to show them, that is the finding, because the others must
 * still be reported.
 *
 * @throws errors that do not concern the statement: the end of the connection, or of its time
 */
export async function unlessUnreadable(
  place: Place,
  look: () => Promise<readonly DoctorFinding[]>,
): Promise<readonly DoctorFinding[]> {
  try {
    return await look()
  } catch (error) {
    const code = serverError(error)?.code
    if (code === undefined || code === SQLSTATE.queryCanceled || endsConnection(error)) throw error
    return [findingOf('rows.unreadable', place, { count: 1, detail: `SQLSTATE ${code}` })]
  }
}

/** A table whose rows are examined, as the catalog describes it. */
export interface Subject {
  readonly metadata: EntityMetadata
  readonly table: ReadTable
  readonly state: TableState
  readonly surroundings: Surroundings
  readonly reader: Reader
  readonly onRows: (property: string, rows: number) => void
  /** Receives the stored texts of each group that normalizing makes equal. */
  readonly onEqual: ((property: string, texts: readonly (readonly (string | null)[])[]) => void) | undefined
}

export const qualifiedTable = (metadata: EntityMetadata): string =>
  qualified(writtenSchema(metadata), metadata.tableName)

/** The rows of a table, as SQL. */
export const countedRows = (relation: string, { partitioned }: Surroundings): string =>
  partitioned ? relation : `ONLY ${relation}`

/** Returns the columns that the table lacks. */
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

/** The key of a result, by its properties. */
export const keyOf = (subject: Subject, result: Result): DoctorKey => toKey(subject, keyOfResult(subject.table, result))

export const databaseNames = (columns: readonly ColumnMetadata[]): string[] =>
  columns.map(({ databaseName }) => databaseName)

/** The number of rows whose references one statement counts. */
const COUNTED_KEYS = 5_000

/** Groups of rows that should be one. */
export class Groups {
  #groups = 0
  #surplus = 0
  #largest = 0
  readonly #keys: Key[] = []
  /** The rows that refer to surplus rows, by foreign key. */
  readonly #references = new Map<Surroundings['referrers'][number], number>()
  #uncounted: Key[] = []
  #last: { readonly identity: string; rows: number } | undefined

  constructor(private readonly subject: Subject) {}

  /** @param keys the keys of the group; if it is divided, its first row is in each part */
  add(identity: string, keys: readonly Key[]): void {
    const [first, ...others] = keys
    if (!first) return
    const goesOn = this.#last?.identity === identity
    this.#last = { identity, rows: others.length + (goesOn ? (this.#last?.rows ?? 1) : 1) }
    if (!goesOn) this.#groups++
    this.#surplus += others.length
    this.#largest = Math.max(this.#largest, this.#last.rows)
    this.#keys.push(...(goesOn ? others : keys).slice(0, SHOWN_KEYS - this.#keys.length))
    this.#uncounted.push(...others)
  }

  /** Counts the rows that refer to these rows, once there are many, or at the end. */
  async countReferences(atEnd: boolean): Promise<void> {
    const { reader, table, surroundings } = this.subject
    while (this.#uncounted.length >= (atEnd ? 1 : COUNTED_KEYS)) {
      const keys = this.#uncounted.splice(0, COUNTED_KEYS)
      for (const referrer of surroundings.referrers) {
        const [found] = await reader.rows(countReferences(table, referrer, keys))
        this.#references.set(referrer, (this.#references.get(referrer) ?? 0) + Number(found?.['rows']))
      }
    }
  }

  /** @returns a finding if there are groups */
  findings(code: ListedCode, place: Place): DoctorFinding[] {
    if (this.#groups === 0) return []
    const references = [...this.#references]
      .filter(([, rows]) => rows > 0)
      .map(([{ table, columns, indexed }, rows]) => ({ table, columns, rows, indexed }))
    const keys = this.#keys.map((key) => toKey(this.subject, key))
    const groups = { groups: this.#groups, largest: this.#largest, references }
    return [findingOf(code, place, { count: this.#surplus, keys, groups })]
  }
}
