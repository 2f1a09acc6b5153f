import { type ArgumentsHost, Catch, HttpException } from '@nestjs/common'
import { BaseExceptionFilter } from '@nestjs/core'
import { httpStatusOf, TextRejectedError, TextTakenError, UniqueTextError } from 'typeorm-unique-text'

/** Answers with the status of the error. Nest logs a fault of the program, and does not send its message. */
@Catch(UniqueTextError)
export class UniqueTextFilter extends BaseExceptionFilter {
  override catch(error: UniqueTextError, host: ArgumentsHost): void {
    const statusCode = httpStatusOf(error) ?? 500
    const { code, message } = error
    const body = { statusCode, code, message, ...detailsOf(error) }
    super.catch(statusCode === 500 ? error : new HttpException(body, statusCode), host)
  }
}

/** With the id, a client can link to the row that holds the text. Leave it out if not every client may see the row. */
function detailsOf(error: UniqueTextError): object {
  if (error instanceof TextTakenError)
    return { taken: error.taken.map(({ property, id }) => ({ property, id: id?.id })) }
  return error instanceof TextRejectedError ? { property: error.property, reason: error.reason } : {}
}
