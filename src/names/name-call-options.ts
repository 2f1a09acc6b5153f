import { DeclarationError } from '../errors'

/**
 * Checks the options of a call: JavaScript has no types, and a misspelt option would be ignored.
 *
 * @param types of the options that there are
 * @throws DeclarationError
 */
export function checkNameOptions(
  operation: string,
  options: object,
  types: Readonly<Record<string, 'boolean' | 'string' | 'number'>>,
): void {
  const given: unknown = options
  if (typeof given !== 'object' || given === null)
    throw new DeclarationError(`${operation}(): options must be an object.`)
  for (const [name, value] of Object.entries(options)) {
    const type = Object.hasOwn(types, name) ? types[name] : undefined
    if (type === undefined) throw new DeclarationError(`${operation}(): there is no option "${name}". Remove it.`)
    if (value === undefined || typeof value === type) continue
    throw new DeclarationError(`${operation}(): ${name} must be ${type === 'boolean' ? 'true or false' : `a ${type}`}.`)
  }
}
