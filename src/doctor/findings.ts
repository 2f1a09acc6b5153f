import type { Finding } from '../errors'

/**
 * `error`: something is wrong or must be done. `warning`: a change of the table will meet it. `information`: nothing to
 * do.
 */
export type DoctorSeverity = 'error' | 'warning' | 'information'

/** What is wrong, and what to do about it. */
const CODES = {
  'text.twice': [
    'error',
    'Make one row of each group (typeorm-unique-text adopt --merge oldest, docs/adopting.md), or change their texts. Then find out what let them in: see the findings about guard, index and triggers.',
  ],
  'text.twiceNormalized': [
    'error',
    'These texts become equal when they are normalized. Where no guard stands, typeorm-unique-text adopt --merge oldest makes one row of each group. Where one stands, do the same after typeorm-unique-text abandon, or merge the rows by hand (docs/adopting.md).',
  ],
  'text.unnormalized': [
    'error',
    'Run typeorm-unique-text adopt --follow, which normalizes texts, and end it with Ctrl-C. Save names normalized; docs/changing-a-declaration.md has the lines that do it.',
  ],
  'text.refused': ['error', 'Correct these texts, or delete their rows: the normalizer refuses them.'],
  'text.unadopted': [
    'error',
    'Run typeorm-unique-text adopt, while the application runs (docs/adopting.md). Up to 100,000 rows migration:generate and migration:run do it too.',
  ],
  'names.unadopted': [
    'error',
    'Run typeorm-unique-text adopt, while the application runs (docs/adopting.md), or migration:generate and migration:run, which lock everybody out meanwhile.',
  ],
  'number.unadopted': [
    'error',
    'Run typeorm-unique-text adopt, while the application runs (docs/adopting.md), or migration:generate and migration:run, which lock everybody out meanwhile.',
  ],
  'disk.needed': ['warning', 'See that the disk has room for it.'],
  'text.null': ['error', 'Give these rows a text, or declare the text nullable.'],
  'hash.missing': ['error', 'Run migration:generate and migration:run. Until then no operation finds these rows.'],
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
  'chain.collision': ['information', 'Different texts of equal hash live side by side. No action is needed.'],
  'name.missing': [
    'error',
    'Change the name of these rows to another one and back, by two UPDATEs, with the triggers on: they claim it.',
  ],
  'name.untrue': ['error', 'Delete these rows of the table of names, with session_replication_role = replica.'],
  'number.missing': ['error', 'Run migration:generate and migration:run, which number rows that have no number.'],
  'number.twice': ['error', 'Give one row of each group another number, then make the unique index.'],
  'count.wrong': [
    'error',
    'Drop one of our triggers from the table that has the rows, and run migration:generate and migration:run at once: they count the rows again.',
  ],
  'rows.hidden': ['warning', 'Row security hides rows from this role. Run the doctor as the owner of the table.'],
  'trigger.user': [
    'warning',
    'These triggers of yours fire for each row that a migration fills. Make sure that they may.',
  ],
  'index.user': [
    'warning',
    'adopt stops where normalizing makes texts equal that this unique index of yours keeps apart. Correct the rows, or drop it: clients can then store equal texts until the step guard, which --merge merges.',
  ],
  'replication.publication': ['warning', 'Add new columns at the subscribers first: a subscriber without them stops.'],
  'replication.subscription': [
    'warning',
    'Add new columns here before the publisher has them, or the subscription stops.',
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

/** Findings about objects of the database that differ from the declaration. */
type SchemaCode = `${Finding['object']}.${Finding['kind']}`

export type DoctorCode = keyof typeof CODES | SchemaCode

/** The primary key of a row, by property. Whole numbers that JavaScript holds exactly are numbers, the rest are strings. */
export type DoctorKey = Readonly<Record<string, string | number>>

/** Rows that should be one. */
export interface DoctorGroups {
  readonly groups: number
  /** Rows of the largest group. */
  readonly largest: number
  /** Rows of other tables that refer, by foreign keys, to a surplus row: any row but the first of its group. */
  readonly references: readonly {
    readonly table: string
    readonly columns: readonly string[]
    readonly rows: number
    /** false: no index begins with these columns, so that the table is read whole for every row that is merged. */
    readonly indexed: boolean
  }[]
}

/** One thing that the doctor found. Never holds a text. */
export interface DoctorFinding {
  readonly code: DoctorCode
  readonly severity: DoctorSeverity
  /** Name of the entity. */
  readonly entity: string
  /** null: it concerns the whole table. */
  readonly property: string | null
  /** How many rows; of groups, how many are surplus; of chains, how many chains; of scopes, how many scopes; else objects. */
  readonly count: number
  /** Keys of the first rows, at most ten; the rows of a group stand together. */
  readonly keys: readonly DoctorKey[]
  /** What to do, in a sentence or two. */
  readonly next: string
  /** Names of objects, or why texts are refused. */
  readonly detail?: string
  readonly groups?: DoctorGroups
}

export const SHOWN_KEYS = 10

/** What to do in a partitioned table, or in a part of it, none of which `adopt` takes. */
const NEXT_OF_PARTS: Partial<Record<keyof typeof CODES, string>> = {
  'text.twice':
    'Turn what refers to these rows to one of each group, and delete the others, or change their texts: adopt takes no partitioned table and no partition. Then find out what let them in: see the findings about guard, index and triggers.',
  'text.twiceNormalized':
    'These texts become equal when they are normalized. Make one row of each group by hand first (docs/changing-a-declaration.md): adopt takes no partitioned table and no partition.',
  'text.unnormalized':
    'Normalize them by the lines of docs/changing-a-declaration.md: adopt takes no partitioned table and no partition.',
}

/** A finding with the next step for a table that is partitioned, or a part of one. */
export const ofPart = (finding: DoctorFinding): DoctorFinding => {
  const next = NEXT_OF_PARTS[finding.code as keyof typeof CODES]
  return next === undefined ? finding : { ...finding, next }
}

/** What of the schema or of rows is not there, or not done. */
const AWAITS_ADOPTION = /^(?!text\.).+\.(?:missing|different|invalid)$/u

/**
 * Returns the findings; where something is not adopted yet, what is missing for it is to be made by `adopt` too.
 *
 * @param names the entity whose table holds all names
 */
export function awaitingAdoption(findings: readonly DoctorFinding[], names: string | undefined): DoctorFinding[] {
  const due = findings.filter(({ code }) => code.endsWith('.unadopted'))
  return findings.map((one) => {
    if (!AWAITS_ADOPTION.test(one.code)) return one
    const adopt = due.find(({ code, entity, property }) => {
      if (one.code === 'table.missing') return one.entity === names && code === 'names.unadopted'
      return one.entity === entity && (one.property === null ? code !== 'text.unadopted' : one.property === property)
    })
    return adopt ? { ...one, next: adopt.next } : one
  })
}

/** Where a finding belongs. */
export interface Place {
  readonly entity: string
  readonly property: string | null
}

export function findingOf(
  code: keyof typeof CODES,
  place: Place,
  rest: Pick<DoctorFinding, 'count'> & Partial<Pick<DoctorFinding, 'keys' | 'detail' | 'groups'>>,
): DoctorFinding {
  const [severity, next] = CODES[code]
  return { code, severity, ...place, keys: [], next, ...rest }
}

/** What the catalog contradicts. */
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
    {
      readonly code: keyof typeof CODES
      readonly detail: string | undefined
      count: number
      readonly keys: DoctorKey[]
    }
  >()

  /** @param detail what is told apart, for instance by the reasons of a refusal */
  add(code: keyof typeof CODES, keys: readonly DoctorKey[], detail?: string, count = 1): void {
    const id = `${code} ${detail ?? ''}`
    const found = this.#found.get(id) ?? { code, detail, count: 0, keys: [] }
    this.#found.set(id, found)
    found.count += count
    found.keys.push(...keys.slice(0, SHOWN_KEYS - found.keys.length))
  }

  findings(place: Place): DoctorFinding[] {
    return [...this.#found.values()].map(({ code, detail, count, keys }) =>
      findingOf(code, place, { count, keys, ...(detail === undefined ? {} : { detail }) }),
    )
  }
}
