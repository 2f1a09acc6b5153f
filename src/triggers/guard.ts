import { guardKernel, PLACE_KERNEL, refuseOtherOwner, SETTLE_KERNEL } from './guard-kernel'
import { literal, quote } from '../sql/identifier'
import { SQLSTATE } from '../sql/sqlstate'
import {
  differentScope,
  differentText,
  equal,
  hashExpression,
  isFreed,
  isLive,
  sameChain,
  sameScope,
  sameText,
  textIsNull,
  type TextTable,
} from '../sql/text-table'
import {
  type Firing,
  type Trigger,
  triggerOn,
  triggerSet,
  type TriggerNote,
  type TriggerSet,
  type TriggerSetParts,
} from '../sql/trigger-set'

/** Raised when a change of the protocol makes an installed guard wrong; docs/upgrading.md says what else it asks for. */
const PROTOCOL_VERSION = 1

/** The guard of one text, as it should stand. What each part of it does is in docs/protocol.md. */
export const guardOf = (table: TextTable): TriggerSet =>
  triggerSet({
    kind: 'guard',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    docs: 'docs/protocol.md',
    functions: [
      {
        name: table.guard,
        body: placeBody(table),
        says: 'makes hashes, and gives number 0 in an empty chain.',
      },
    ],
    kernel: guardKernel,
    triggers: (schema) => guardTriggers({ ...table, schema }),
    note: noteOf(table),
  })

/** The triggers that keep a text; none for one without a guard. */
export const guardsOf = (table: TextTable): TriggerSet[] => (table.guardless === true ? [] : [guardOf(table)])

/** What of a declaration the rows depend on, or the guard holds them to, as the note has it. */
const NOTED = [
  'text',
  'normalizers',
  'scope',
  'deleted',
  'nullable',
  'immutable',
  'maxChainLength',
  'hash',
  'number',
  'chained',
  'index',
  'check',
] as const

/** Enough to find drift that the catalog does not show, to follow a renamed column, and to restore the rows. */
export interface GuardNote extends TriggerNote, Pick<TextTable, 'name' | (typeof NOTED)[number]> {
  readonly kind: 'guard'
  /** The name of the digest. */
  readonly digest: string
}

/** What a note leaves out. */
const DEFAULTS = { scope: [], nullable: false, immutable: false } as const

const isDefault = (key: string, value: unknown): boolean =>
  JSON.stringify(value) === JSON.stringify(Reflect.get(DEFAULTS, key))

const noteOf = (table: TextTable): TriggerSetParts['note'] => ({
  protocol: PROTOCOL_VERSION,
  digest: table.digest.name,
  ...Object.fromEntries(NOTED.flatMap((key) => (isDefault(key, table[key]) ? [] : [[key, table[key]]]))),
})

/** undefined where the note is that of another set, or of a version which wrote something else and does not serve this one. */
export const asGuardNote = (note: TriggerNote): GuardNote | undefined => {
  const { kind, protocol, serves = protocol } = note
  const isReadable = serves <= PROTOCOL_VERSION && PROTOCOL_VERSION <= protocol
  return kind === 'guard' && isReadable ? { ...DEFAULTS, ...(note as GuardNote) } : undefined
}

/** Columns of the row that the function assigns to. */
const columnsOf = (table: TextTable): Record<'hash' | 'number' | 'chained', string> => ({
  hash: quote(table.hash),
  number: quote(table.number),
  chained: quote(table.chained),
})

/** `IF … THEN`, one predicate a line. */
const when = (...predicates: readonly string[]): string => `\n  IF ${predicates.join('\n    AND ')} THEN`

/**
 * BEFORE INSERT OR UPDATE, for what practically every row needs. A number of −1 says that the chain is not empty, and
 * has the kernel look for one; the check would refuse it.
 *
 * In a partition, in a shard and under another name the kernel does it all: this function's query names the table.
 */
function placeBody(table: TextTable): string {
  const { number, chained } = columnsOf(table)
  return `
DECLARE
  plain boolean := ${equal('TG_TABLE_NAME', literal(table.table))} AND pg_catalog.pg_table_is_visible(TG_RELID);
  taken boolean;
BEGIN${refuseOtherOwner(literal(table.index), 'plain')}${keepUnchanged(table)}${withoutText(table)}
${makeHash(table)}
  NEW.${number} := -1;
  NEW.${chained} := false;${withoutChain(table)}
  IF plain THEN
    -- Of a text that stands at 0, the index raises the ordinary violation.
    SELECT ${[equal(`t.${number}`, '0'), ...sameText(table, 't', 'NEW')].join('\n      AND ')} INTO taken
      FROM ONLY ${quote(table.table)} AS t
      WHERE ${[...sameChain(table, 't', 'NEW'), ...isLive(table, 't')].join('\n        AND ')}
      LIMIT 1;
    IF NOT FOUND OR taken AND ${equal('TG_OP', "'INSERT'")} THEN
      NEW.${number} := 0;
    END IF;
  END IF;
  RETURN NEW;
END
`
}

/** Where the hash decides in which part of the table a row lies, the row is there already. */
function makeHash(table: TextTable): string {
  const hash = columnsOf(table).hash
  const made = hashExpression(table, 'NEW', '\n    ')
  if (table.spread === undefined) return `  NEW.${hash} := ${made};`
  return `  IF (${equal(`NEW.${hash}`, made)}) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.checkViolation}', MESSAGE = 'the hash is not that of the text',
      HINT = ${literal(`The table is spread by ${quote(table.hash)}: send it, made of the text as the check has it.`)},
      CONSTRAINT = ${literal(table.check)}, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;`
}

/** A text that stays where it is keeps its number; only a promotion writes another, which is 0. Nobody clears the flag. */
function keepUnchanged(table: TextTable): string {
  const { hash, number, chained } = columnsOf(table)
  const same = [...sameScope(table, 'OLD', 'NEW'), ...sameText(table, 'OLD', 'NEW')]
  if (table.deleted !== undefined) same.push(`(${[...isLive(table, 'OLD'), ...isFreed(table, 'NEW')].join(' OR ')})`)
  return `${when(equal('TG_OP', "'UPDATE'"), ...same)}
    NEW.${hash} := OLD.${hash};
    NEW.${number} := CASE WHEN ${equal(`NEW.${number}`, '0')} THEN 0 ELSE OLD.${number} END;
    NEW.${chained} := OLD.${chained} OR NEW.${chained} IS TRUE;
    RETURN NEW;
  END IF;${table.immutable ? refuseChange(table) : ''}`
}

/** The scope counts as part of an immutable text; a text that was NULL may still be given. */
function refuseChange(table: TextTable): string {
  const given = table.nullable ? [`NOT (${textIsNull(table, 'OLD').join(' AND ')})`] : []
  const different = [...differentText(table, 'OLD', 'NEW'), ...differentScope(table, 'OLD', 'NEW')]
  // Without soft deletes, a row that has not changed does not get here.
  const changed = table.deleted === undefined ? [] : [`(${different.join(`\n      OR `)})`]
  return `${when(equal('TG_OP', "'UPDATE'"), ...given, ...changed)}
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.immutableText}', MESSAGE = 'the text is immutable',
      CONSTRAINT = ${literal(table.index)}, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
  END IF;`
}

function withoutText(table: TextTable): string {
  if (!table.nullable) return ''
  const { hash, number, chained } = columnsOf(table)
  return `${when(...textIsNull(table, 'NEW'))}
    NEW.${hash} := NULL;
    NEW.${number} := 0;
    NEW.${chained} := false;
    RETURN NEW;
  END IF;`
}

/** Deleted softly, a row is in no chain. Once it is restored, it gets a number that is free then. */
function withoutChain(table: TextTable): string {
  if (table.deleted === undefined) return ''
  return `${when(...isFreed(table, 'NEW'))}
    NEW.${columnsOf(table).number} := 0;
    RETURN NEW;
  END IF;`
}

/** The columns that `rest` names, in this order: from it the kernel knows them, whatever they are called by then. */
const watchedColumns = ({ text, scope, hash, number, chained, deleted }: TextTable): string[] => [
  ...text.map(({ name }) => name),
  ...scope,
  hash,
  number,
  chained,
  ...(deleted === undefined ? [] : [deleted]),
]

/** The six triggers, in the order to create; docs/protocol.md says what each is for. */
function guardTriggers(table: TextTable): Trigger[] {
  const { hash, number, chained } = columnsOf(table)
  const moved = [
    ...differentText(table, 'OLD', 'NEW'),
    ...differentScope(table, 'OLD', 'NEW'),
    `(${equal(`OLD.${hash}`, `NEW.${hash}`)}) IS NOT TRUE`,
    `(${equal(`OLD.${number}`, `NEW.${number}`)}) IS NOT TRUE`,
    `OLD.${chained} AND NEW.${chained} IS NOT TRUE`,
    ...restored(table),
  ]
  const beyond = `OPERATOR(pg_catalog.>) 0`
  const named = { time: 'BEFORE', columns: watchedColumns(table) } as const
  // AFTER: in a BEFORE trigger an UPDATE over several rows of a chain would meet rows that its own trigger has changed,
  // and fail with 27000 for ever.
  const settle = (event: 'insert' | 'update' | 'delete', when: readonly string[]): Trigger =>
    trigger(table, `settle_${event}`, { ...inKernel(table, SETTLE_KERNEL), time: 'AFTER', events: [event], when })
  return [
    // With hash and number 0 from the client nothing runs: check and index decide.
    trigger(table, 'place_insert', {
      time: 'BEFORE',
      events: ['insert'],
      when: [`NEW.${hash} IS NULL`, `(${equal(`NEW.${number}`, '0')}) IS NOT TRUE`],
      runs: table.guard,
    }),
    // Naming columns keeps other UPDATEs from preparing this condition. The check reads the text at each of them.
    trigger(table, 'place_update', { ...named, events: ['update'], when: moved, runs: table.guard }),
    trigger(table, 'rest', {
      ...named,
      ...inKernel(table, PLACE_KERNEL),
      events: ['insert', 'update'],
      when: [`NEW.${number} OPERATOR(pg_catalog.<) 0`],
    }),
    settle('insert', [`NEW.${number} ${beyond}`]),
    // No columns are named: a user's own BEFORE trigger may change those that the statement does not name.
    settle('update', [`OLD.${chained}`, `NEW.${chained}`, `NEW.${number} ${beyond}`]),
    // Only an anchor that has, or had, others: every other DELETE is free of the function.
    settle('delete', [`OLD.${chained}`]),
  ]
}

/** The row was deleted softly and takes its text again; for an OR. */
function restored(table: TextTable): string[] {
  return table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
}

/** The name of a trigger. Those of one event fire in the order of their names: `rest` after `place_…`. */
const triggerName = (table: Pick<TextTable, 'guard'>, suffix: string): string => `${table.guard}_${suffix}`

const trigger = (table: TextTable, suffix: string, firing: Omit<Firing, 'name'>): Trigger =>
  triggerOn({ schema: table.schema, name: table.table }, { ...firing, name: triggerName(table, suffix) })

/** A function of the kernel, and what it must know. */
function inKernel(table: TextTable, runs: string): Pick<Firing, 'runs' | 'args'> {
  const { text, scope, index, maxChainLength } = table
  return { runs, args: [triggerName(table, 'rest'), text.length, scope.length, index, maxChainLength].map(String) }
}
