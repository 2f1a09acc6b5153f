import { type ArgumentsHost, Catch, ConflictException, UnprocessableEntityException } from '@nestjs/common'
import { BaseExceptionFilter } from '@nestjs/core'
import { TextRejectedError, TextTakenError } from 'typeorm-unique-text'

/** A text that is taken is a conflict, a text that cannot be stored is unprocessable. */
@Catch(TextTakenError, TextRejectedError)
export class UniqueTextFilter extends BaseExceptionFilter {
  override catch(error: TextTakenError | TextRejectedError, host: ArgumentsHost): void {
    super.catch(error instanceof TextTakenError ? conflict(error) : unprocessable(error), host)
  }
}

/** With the id, a client can link to the row that holds the text; leave it out where rows are not for everyone. */
function conflict({ message, taken }: TextTakenError): ConflictException {
  const holders = taken.map(({ property, id }) => ({ property, id: id?.['id'] }))
  return new ConflictException({ statusCode: 409, error: 'Conflict', message, taken: holders })
}

function unprocessable({ message, property, reason }: TextRejectedError): UnprocessableEntityException {
  return new UnprocessableEntityException({
    statusCode: 422,
    error: 'Unprocessable Entity',
    message,
    property,
    reason,
  })
}
