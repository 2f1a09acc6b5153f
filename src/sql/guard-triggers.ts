import { fitName, literal, qualified, quote } from './identifier'
import { field, sameValue, type TextTable, tableName } from './text-table'

/** A trigger of the guard. */
export interface GuardTrigger {
  readonly name: string
  /** The function's name. */
  readonly runs: string
  /** As `pg_trigger.tgtype` has it. */
  readonly type: number
  /** The whole CREATE TRIGGER statement. */
  readonly create: string
}

/** Bits of `pg_trigger.tgtype`: for each row 1, before 2, insert 4, delete 8, update 16. */
const TYPES = {
  place_insert: 1 + 2 + 4,
  place_update: 1 + 2 + 16,
  touch_insert: 1 + 4,
  touch_update: 1 + 16,
  promote_delete: 1 + 8,
  promote_update: 1 + 16,
}

/** The six triggers, in the order to create; docs/protocol.md says what each is for. */
export function guardTriggers(table: TextTable, place: string, settle: string): GuardTrigger[] {
  const on = tableName(table)
  const run = (name: string, chain?: 'new' | 'old'): string =>
    `EXECUTE FUNCTION ${qualified(table.schema, name)}(${chain ? literal(chain) : ''})`
  const trigger = (suffix: keyof typeof TYPES, rest: string): GuardTrigger => {
    const name = fitName(`${table.guard}_${suffix}`)
    const runs = suffix.startsWith('place') ? place : settle
    return { name, runs, type: TYPES[suffix], create: `CREATE TRIGGER ${quote(name)} ${rest}` }
  }
  const [hash, number, chained] = [quote(table.hash), quote(table.number), quote(table.chained)]
  // Naming the columns keeps every other UPDATE from comparing texts, and from fetching long ones out of TOAST. The
  // AFTER triggers name none, for a user's own BEFORE trigger may change a scope that the statement does not name; for
  // nearly every row their first condition is false.
  const keys = [...table.text.map(({ name }) => name), ...table.scope, table.hash, table.number].map(quote)
  const text = table.text.map(({ name }) => differs(name, '::pg_catalog.text'))
  const chain = [...table.scope, table.hash].map((name) => differs(name))
  const moved = [...text, ...chain, differs(table.number)].join(' OR ')
  const left = `OLD.${number} = 0 AND OLD.${chained} AND (${chain.join(' OR ')})`
  return [
    trigger(
      'place_insert',
      `BEFORE INSERT ON ${on} FOR EACH ROW WHEN (NEW.${hash} IS NULL OR NEW.${number} IS DISTINCT FROM 0) ${run(place)}`,
    ),
    trigger(
      'place_update',
      `BEFORE UPDATE OF ${[...keys, chained].join(', ')} ON ${on} FOR EACH ROW ` +
        `WHEN (${moved} OR (OLD.${chained} AND NEW.${chained} IS NOT TRUE)) ${run(place)}`,
    ),
    trigger('touch_insert', `AFTER INSERT ON ${on} FOR EACH ROW WHEN (NEW.${number} > 0) ${run(settle, 'new')}`),
    trigger(
      'touch_update',
      `AFTER UPDATE ON ${on} FOR EACH ROW WHEN (NEW.${number} > 0 AND (${moved})) ${run(settle, 'new')}`,
    ),
    trigger(
      'promote_delete',
      `AFTER DELETE ON ${on} FOR EACH ROW WHEN (OLD.${number} = 0 AND OLD.${chained}) ${run(settle, 'old')}`,
    ),
    trigger('promote_update', `AFTER UPDATE ON ${on} FOR EACH ROW WHEN (${left}) ${run(settle, 'old')}`),
  ]
}

function differs(name: string, cast = ''): string {
  const [before, after] = [`${field('OLD', name)}${cast}`, `${field('NEW', name)}${cast}`]
  return cast === '' ? `${before} IS DISTINCT FROM ${after}` : `NOT (${sameValue(before, after)})`
}
