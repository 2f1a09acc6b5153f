import { attach, detach, ensureLibrary, temporary } from '../sql/library'
import { hashExpression, type TextTable } from '../sql/text-table'
import type { Wording } from '../sql/written'
import { digests } from '../text/digest'
import { normalizerLabel, toNormalizer } from '../text/normalizer'

/** The version that attach writes to a declaration. docs/upgrading.md explains when another one is needed. */
export const PROTOCOL_VERSION = 1

/** The guard of a text, as it should exist. */
export interface Guard {
  readonly table: TextTable
  readonly declaration: GuardDeclaration
  /** The names of its triggers. The first function has the name of the guard. */
  readonly triggers: readonly string[]
  readonly attach: string
  readonly detach: string
  /** Create the guard, with the library if it is missing, and drop the guard. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/** What a guard enforces, and what the rows depend on: the second argument of attach. */
export interface GuardDeclaration extends Pick<
  TextTable,
  'name' | 'index' | 'check' | 'scope' | 'hash' | 'number' | 'chained' | 'nullable' | 'immutable' | 'maxChainLength'
> {
  readonly kind: 'text'
  readonly protocol: number
  /** The oldest protocol of a release that can work with this guard. @default protocol */
  readonly serves?: number
  readonly text: readonly string[]
  /** The prefixes of the columns, if one has any. */
  readonly prefixes: readonly string[]
  /** The name of the digest. */
  readonly digest: string
  /** For a digest of the user's own, the hash of the row NEW, as SQL. */
  readonly hashed?: string
  readonly normalizers: readonly string[]
  readonly deleted?: string
  readonly spread?: boolean
  /** The first part of the names of functions and triggers. If undefined, it consists of the table and the text. */
  readonly guard?: string
  /** The schema and the table for which attach made the code. */
  readonly on?: readonly [schema: string, table: string]
  /** The types of the triggers that attach made, and the digest of the code that they run. */
  readonly triggers?: readonly number[]
  readonly bodies?: string
}

const NONE = normalizerLabel(toNormalizer(undefined))

/** Fills in what a declaration leaves out. */
export function wholeDeclaration(
  given: Pick<GuardDeclaration, 'name' | 'text' | 'index'> & Partial<GuardDeclaration>,
): GuardDeclaration {
  const { name, text } = given
  return {
    kind: 'text',
    protocol: PROTOCOL_VERSION,
    scope: [],
    hash: `${name}Hash`,
    number: `${name}HashNumber`,
    chained: `${name}HashChained`,
    check: '',
    nullable: false,
    immutable: false,
    maxChainLength: 100,
    digest: 'md5',
    prefixes: text.map(() => ''),
    normalizers: text.map(() => NONE),
    ...given,
  }
}

/** Returns the declaration of a text, without what `wholeDeclaration` fills in. */
function declarationOf(table: TextTable): Partial<GuardDeclaration> {
  // Compared by name and SQL, because each copy of this package has its own objects.
  const isOwn = Object.values(digests).every(
    ({ name, sql }) => name !== table.digest.name || sql('t') !== table.digest.sql('t'),
  )
  const all: GuardDeclaration = {
    kind: 'text',
    protocol: PROTOCOL_VERSION,
    name: table.name,
    text: table.text.map(({ name }) => name),
    prefixes: table.text.map(({ prefix }) => prefix),
    scope: table.scope,
    hash: table.hash,
    number: table.number,
    chained: table.chained,
    index: table.index,
    check: table.check,
    digest: table.digest.name,
    nullable: table.nullable,
    immutable: table.immutable,
    maxChainLength: table.maxChainLength,
    normalizers: table.normalizers,
    ...(isOwn ? { hashed: hashExpression(table, 'NEW') } : {}),
    ...(table.deleted === undefined ? {} : { deleted: table.deleted }),
    ...(table.spread === undefined ? {} : { spread: true }),
    ...(table.guard === `unique_text_${table.table}__${table.name}` ? {} : { guard: table.guard }),
  }
  return shortDeclaration(all)
}

const REQUIRED: ReadonlySet<string> = new Set(['name', 'text', 'index'])

/** The keys that attach adds. */
const MADE: ReadonlySet<string> = new Set(['triggers', 'bodies', 'on'])

/** Leaves out what `wholeDeclaration` fills in, and what attach adds. */
export function shortDeclaration(all: GuardDeclaration): Partial<GuardDeclaration> {
  const { name, text, index } = all
  const filled: Readonly<Record<string, unknown>> = { ...wholeDeclaration({ name, text, index }) }
  return Object.fromEntries(
    Object.entries(all).filter(
      ([key, value]) => !MADE.has(key) && (REQUIRED.has(key) || JSON.stringify(value) !== JSON.stringify(filled[key])),
    ),
  )
}

/** The ends of the names of triggers, by the events on which they fire, as `pg_trigger.tgtype`. */
export const GUARD_TRIGGERS: ReadonlyMap<number, string> = new Map([
  [7, 'place_insert'],
  [19, 'place_update'],
  [23, 'rest'],
  [5, 'settle_insert'],
  [17, 'settle_update'],
  [9, 'settle_delete'],
])

/** Returns the guard that a text should have. */
export function guardOf(table: TextTable): Guard {
  const declared = declarationOf(table)
  const statements = { attach: attach(table, declared), detach: detach(table, table.name) }
  return {
    table,
    declaration: wholeDeclaration(declared as GuardDeclaration),
    triggers: [...GUARD_TRIGGERS.values()].map((suffix) => `${table.guard}_${suffix}`),
    ...statements,
    create: [ensureLibrary(table.schema, 'texts'), statements.attach],
    drop: [statements.detach],
  }
}

/** Everything that states the conditions of the triggers of guards in the server's words. */
export const wordedGuards = (guards: readonly Guard[]): Wording[] =>
  guards.length === 0
    ? []
    : [
        { key: 'library', make: temporary.library },
        ...guards.map(({ table }): Wording => {
          const declaration = { ...declarationOf(table), guard: table.guard }
          return { key: 'guard', make: (name) => temporary.guard(name, declaration) }
        }),
      ]

/** Returns the guard of a text in a list, which is empty for a text without a guard. */
export const guardsOf = (table: TextTable): Guard[] => (table.guardless === true ? [] : [guardOf(table)])
